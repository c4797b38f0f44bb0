The texts about the tables that all queues of a database share, for every database: they name no queue. A text that one
database writes in another way stands in its folder, under the same name. {now} is the time in seconds since 1970,
{now_us} in microseconds. {lock} locks the rows that a query reads; {skip} also skips those that another transaction
has locked. Both are empty on SQLite, which locks its file. {unless:columns} makes an INSERT skip a row that is there.

xq_queue has the installed queues, xq_setting the settings of `configure`, and for a minute the tasks that were
cancelled while they were taken, by key and token, xq_session the sessions (queue '') and the queues in which each may
own tasks, xq_slot the slots of xq.Concurrency, xq_lease (on a server) the tokens whose ttr does not pass. records.sql
says what a queue has in these tables and in others.

--: definitions
-- The definitions of the installed queues.
SELECT name, fingerprint FROM xq_queue ORDER BY name

--: queues
-- The names of the installed queues.
SELECT name FROM xq_queue

--: time_us
-- The time of the database, or of a test's clock.
SELECT {now_us}

--: set_setting
-- Set what `configure` is given. It applies to all queues of the database.
INSERT INTO xq_setting (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value

-- Sessions.

--: sessions
-- The sessions and the processes that registered them, the earliest first.
SELECT uuid, since, host, pid, program FROM xq_session WHERE queue = '' ORDER BY since, uuid

--: sessions_listed
-- All sessions and their queues, with the seconds until each expires (NULL: never), and its process.
SELECT uuid, queue, ends - {now}, host, pid, program FROM xq_session

--: session_queues
-- The queues in which some sessions may own tasks.
SELECT queue FROM xq_session WHERE uuid IN (:uuids)

--: session_listed
-- Register a session with a queue, before it takes. It expires in `:lease` seconds (NULL: never).
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    VALUES (:uuid, '', {now}, {now} + :lease, :host, :pid, :program),
        (:uuid, :queue, {now}, {now} + :lease, :host, :pid, :program)
    {unless:uuid, queue}

--: session_is_there
-- A row if a session has not expired. A session connection has its own {now}.
SELECT 1 FROM xq_session WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > {now})

--: session_rejoined
-- The same, as last committed instead of as of the transaction's snapshot.
SELECT 1 FROM xq_session WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > {now}) {lock}

--: rejoin_session
-- Extend a session to `:lease` seconds from now (NULL: for ever), unless it has expired. Also record this process: the
-- one that registered the session may have ended.
UPDATE xq_session SET ends = {now} + :lease, host = :host, pid = :pid, program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > {now})

--: describe_session
-- Write the program of a session, for operators.
UPDATE xq_session SET program = :program WHERE uuid = :uuid

--: expire_session_later
-- Make sessions whose process has ended expire after session_ttr, if that is set: until then another may join them.
UPDATE xq_session
    SET ends = COALESCE(ends, {now} + (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid IN (:uuids) AND (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0) IS NOT NULL

--: session_ends
-- Those of some sessions that will expire. The others end at once.
SELECT uuid FROM xq_session WHERE uuid IN (:uuids) AND ends IS NOT NULL

--: older_sessions
-- Those of some sessions that were registered before the server was started: their locks went with it.
SELECT uuid FROM xq_session WHERE queue = '' AND uuid IN (:uuids) AND since < {server_start}

--: session_over
-- Those of some sessions that have expired, locked so that no process can join them again.
SELECT uuid FROM xq_session WHERE uuid IN (:uuids) AND ends <= {now} {lock}

--: deregister_session
-- Delete sessions from a queue, in which they own no task any more; from queue '', those that have ended.
DELETE FROM xq_session WHERE uuid IN (:uuids) AND queue = :queue

-- Slots, leases and cancelled tasks.

--: add_slot
-- Make a slot of xq.Concurrency, unless it is there.
INSERT INTO xq_slot (name, slot, session) VALUES (:name, :slot, '') {unless:name, slot}

--: free_slots
-- Up to `:n` of the first `:most` slots that are free, or of ended sessions, locked to be taken. It does not wait:
-- another transaction takes or frees the slot that it has locked.
SELECT slot FROM xq_slot WHERE name = :name AND slot <= :most
    AND (session = '' OR session NOT IN (
        SELECT uuid FROM xq_session WHERE queue = '' AND (ends IS NULL OR ends > {now})))
    ORDER BY slot LIMIT :n {skip}

--: take_slot
-- Give a slot to a session.
UPDATE xq_slot SET session = :uuid WHERE name = :name AND slot = :slot

--: leave_slot
-- Free a slot, unless another session has it by now.
UPDATE xq_slot SET session = '' WHERE name = :name AND slot = :slot AND session = :uuid

--: hold_task
-- Keep the ttr of the task of a token from passing for `:ttr` seconds.
INSERT INTO xq_lease (token, ends) VALUES (:token, {now} + :ttr) ON CONFLICT (token) DO UPDATE SET ends = excluded.ends

--: forget_held
-- Forget those whose time has passed.
DELETE FROM xq_lease WHERE ends < {now}

--: forget_cancelled
-- Forget the cancelled tasks whose time has passed.
DELETE FROM xq_setting WHERE substr(name, 1, 10) = 'cancelled:' AND value < {now}
