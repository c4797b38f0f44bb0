Texts that MariaDB writes in its own way: see ../records.sql.

--: set_setting
-- Set what `configure` is given. It applies to all queues of the database.
INSERT INTO xq_setting (name, value) VALUES (:name, :value) ON DUPLICATE KEY UPDATE value = :value
