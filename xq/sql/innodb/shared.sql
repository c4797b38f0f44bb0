Texts that MariaDB and MySQL write in their own way: see ../shared.sql.

--: set_setting
-- Set what `configure` is given. It applies to all queues of the database.
INSERT INTO xq_setting (name, value) VALUES (:name, :value) ON DUPLICATE KEY UPDATE value = :value

--: hold_task
-- Keep the ttr of the task of a token from passing for `:ttr` seconds.
INSERT INTO xq_lease (token, ends) VALUES (:token, {now} + :ttr) ON DUPLICATE KEY UPDATE ends = VALUES(ends)
