The texts about xq's own tables, for every database. A text that one database writes in another way stands in its
folder, under the same name. {now} is the time in seconds since 1970, {now_us} in microseconds. {queue} is the name of
the queue. {lock} locks the rows that a query reads; {skip} also skips those that another transaction has locked. Both
are empty on SQLite, which locks its file. {unless:columns} makes an INSERT skip a row that is there.

xq_queue has the installed queues, xq_setting the settings of `configure`, and for a minute the tasks that were
cancelled while they were taken, by key and token, xq_session the sessions (queue '') and the
queues in which each may own tasks, xq_pause the paused queues (whole = 1, tube '') and tubes, xq_schedule the
schedules, xq_slot the slots of xq.Concurrency, xq_rate the token buckets, xq_lease (on a server) the tokens whose ttr
does not pass. xq_object has what install() has made. xq_generation has the definitions and the sets of schedules that were the newest of their queue in turn.
{waits} is the queue's table of the callers that wait for a task.

--: installed
-- The layout and the fingerprint of this queue, if it is installed.
SELECT version, fingerprint FROM xq_queue WHERE name = {queue}

--: recorded
-- Record that this queue is installed.
INSERT INTO xq_queue (name, version, fingerprint) VALUES ({queue}, {version}, {fingerprint})

--: forget
-- Forget that this queue is installed.
DELETE FROM xq_queue WHERE name = {queue}

--: generations
-- What was the newest of a kind in turn, the last one now: the text, the layout, and the microseconds of its end.
SELECT definition, version, at_us FROM xq_generation WHERE queue = {queue} AND kind = :kind ORDER BY generation

--: forget_noted
-- Forget where the installed definition stands among those that were the newest in turn.
DELETE FROM xq_generation WHERE queue = {queue} AND kind = 'definition'
    AND (version, definition) = (SELECT version, fingerprint FROM xq_queue WHERE name = {queue})

--: note_installed
-- Note the installed definition as the newest.
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    SELECT name, 'definition', (SELECT COALESCE(MAX(generation), 0) + 1 FROM xq_generation
        WHERE queue = {queue} AND kind = 'definition'), version, fingerprint, {now_us} FROM xq_queue WHERE name = {queue}

--: note_schedules
-- Note a set of declared schedules as the newest. Another process may have, at this moment.
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    VALUES ({queue}, 'schedules', :generation, '', :definition, {now_us}) {unless:queue, kind, generation}

--: forget_schedules
-- Forget which sets of schedules were declared: the next start of workers declares the newest one.
DELETE FROM xq_generation WHERE queue = {queue} AND kind = 'schedules'

--: forget_in
-- Forget what another table has of this queue.
DELETE FROM {table} WHERE queue = {queue}

--: objects
-- What install() has made for this queue, each index and trigger with its hash.
SELECT name, hash FROM xq_object WHERE queue = {queue}

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
-- Register a session with this queue, before it takes. It expires in `:lease` seconds (NULL: never).
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    VALUES (:uuid, '', {now}, {now} + :lease, :host, :pid, :program),
        (:uuid, {queue}, {now}, {now} + :lease, :host, :pid, :program)
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

--: session_over
-- Those of some sessions that have expired, locked so that no process can join them again.
SELECT uuid FROM xq_session WHERE uuid IN (:uuids) AND ends <= {now} {lock}

--: deregister_session
-- Delete sessions from a queue, in which they own no task any more; from queue '', those that have ended.
DELETE FROM xq_session WHERE uuid IN (:uuids) AND queue = :queue

-- Pauses.

--: pauses
SELECT tube, whole, since_us, actor, reason FROM xq_pause WHERE queue = {queue}

--: pause
-- Pause the queue or a tube. One that is paused keeps its time, actor and reason.
INSERT INTO xq_pause (queue, tube, whole, since_us, actor, reason)
    VALUES ({queue}, :tube, :whole, {now_us}, :actor, :reason) {unless:queue, tube, whole}

--: resume
-- Resume the queue or a tube.
DELETE FROM xq_pause WHERE queue = {queue} AND tube = :tube AND whole = :whole

-- Schedules. One that does not fire again has no next_us.

--: schedules
-- The schedules of this queue that have not ended.
SELECT name, spec, task, next_us, last_us, paused, {now_us}, paused_us, actor, reason FROM xq_schedule
    WHERE queue = {queue} AND next_us IS NOT NULL ORDER BY name

--: declared_schedules
-- The schedules of this queue whose task is like `:mark`: those that a program declares.
SELECT name, spec, task FROM xq_schedule WHERE queue = {queue} AND task LIKE :mark ORDER BY name

--: next_firings
-- The microseconds until the next firing of each schedule of every queue.
SELECT queue, name, next_us - {now_us}, {now_us} FROM xq_schedule WHERE next_us IS NOT NULL AND paused IS NULL

--: add_schedule
-- Add a schedule, unless there is one of this name. On a server this locks that one.
INSERT INTO xq_schedule (queue, name, spec, task, next_us) VALUES ({queue}, :name, :spec, :task, :next_us)
    {unless:queue, name}

--: schedule
-- A schedule by its name, locked to be changed.
SELECT spec, task, next_us FROM xq_schedule WHERE queue = {queue} AND name = :name {lock}

--: task_of_schedule
-- The task of a schedule by its name. Locks nothing.
SELECT task FROM xq_schedule WHERE queue = {queue} AND name = :name

--: due_schedule
-- A due schedule by its name, locked to be fired. It does not wait: the transaction that has locked a schedule changes
-- it or fires it.
SELECT spec, task, next_us, {now_us} FROM xq_schedule
    WHERE queue = {queue} AND name = :name AND paused IS NULL AND next_us <= {now_us} {skip}

--: set_schedule
-- Change a schedule.
UPDATE xq_schedule SET spec = :spec, task = :task, next_us = :next_us WHERE queue = {queue} AND name = :name

--: fired_schedule
-- Record that a schedule fires, in the transaction that puts its task.
UPDATE xq_schedule SET next_us = :next_us, last_us = {now_us} WHERE queue = {queue} AND name = :name

--: pause_schedule
-- Pause a schedule. One that is paused keeps its time, actor and reason.
UPDATE xq_schedule SET paused = 1, paused_us = {now_us}, actor = :actor, reason = :reason
    WHERE queue = {queue} AND name = :name AND paused IS NULL

--: resume_schedule
-- Resume a schedule: it does not fire for the time in which it was paused.
UPDATE xq_schedule SET paused = NULL, next_us = :next_us WHERE queue = {queue} AND name = :name AND paused = 1

--: drop_schedule
-- Drop a schedule.
DELETE FROM xq_schedule WHERE queue = {queue} AND name = :name

-- Slots and token buckets.

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

--: drop_full_buckets
-- Delete the buckets that have been full for a minute: a bucket without a row is full, and a take that still waits for
-- a lock has an earlier time.
DELETE FROM xq_rate WHERE queue = {queue} AND full_us <= {now_us} - 60000000

--: hold_task
-- Keep the ttr of the task of a token from passing for `:ttr` seconds.
INSERT INTO xq_lease (token, ends) VALUES (:token, {now} + :ttr) ON CONFLICT (token) DO UPDATE SET ends = excluded.ends

--: forget_held
-- Forget those whose time has passed.
DELETE FROM xq_lease WHERE ends < {now}

--: forget_cancelled
-- Forget the cancelled tasks whose time has passed.
DELETE FROM xq_setting WHERE substr(name, 1, 10) = 'cancelled:' AND value < {now}

-- Callers that wait for the end of a task, by the {parts} of its key; {values} are those of a call, and {this_key}
-- compares both. Triggers write to a wait how the task ended.

--: begin_wait
-- Begin to wait for the end of a task.
INSERT INTO {waits} ({parts}, waiter, session, since) VALUES ({values}, :waiter, :uuid, {now})

--: end_wait
-- End a wait, and return how the task ended (NULL if it has not).
DELETE FROM {waits} WHERE {this_key} AND waiter = :waiter RETURNING event, target

--: ends
-- The waiters whose task has ended, and how.
SELECT waiter, event, target FROM {waits} WHERE event IS NOT NULL

--: waiting
-- The waits for tasks that have not ended, for operators.
SELECT {parts}, session, since FROM {waits} WHERE event IS NULL ORDER BY since

--: taken_and_awaited
-- A session's waiters for taken tasks, and the rows of these: its own process may have taken them.
SELECT w.waiter, {columns_of_t} FROM {waits} AS w JOIN {tasks} AS t ON {t_is_awaited}
    WHERE w.session = :uuid AND w.event IS NULL AND {t_is_taken}

--: forget_waits
-- Delete the waits of sessions that have ended.
DELETE FROM {waits} WHERE session IN (:uuids)
