Texts that PostgreSQL writes in its own way: see ../shared.sql.

--: session_listed
-- Register a session with a queue, before it takes. ON CONFLICT alone would wait for the row if this thread's
-- transaction has changed it.
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    SELECT :uuid, queue, {now}, {now} + :lease, :host, :pid, :program FROM (VALUES (''), (:queue)) AS mine (queue)
    WHERE NOT EXISTS (SELECT 1 FROM xq_session WHERE uuid = :uuid AND queue = mine.queue)
    {unless:uuid, queue}
