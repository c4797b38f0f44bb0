The texts about what one queue has in xq's own tables, for every database. {queue} is the name of the queue, and the
other words are those of shared.sql.

xq_queue has the installed queues, xq_object what install() has made, xq_pause the paused queues (whole = 1, tube ''),
tubes and groups (whole = 2), xq_schedule the schedules, xq_rate the token buckets. xq_generation has the definitions of
a queue in the order of their first installation, and the sets of schedules that were the newest in turn. {waits} is the
queue's table of the callers that wait for a task.

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
-- What was new of a kind in turn: the text, the layout, its place, and the microseconds when another one replaced it.
SELECT definition, version, generation, at_us FROM xq_generation WHERE queue = {queue} AND kind = :kind ORDER BY generation

--: note_installed
-- Note the installed definition as the newest, unless it was installed before: a downgrade leaves it in its place.
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    SELECT name, 'definition', (SELECT COALESCE(MAX(generation), 0) + 1 FROM xq_generation
        WHERE queue = {queue} AND kind = 'definition'), version, fingerprint, {now_us} FROM xq_queue WHERE name = {queue}
        AND (version, fingerprint) NOT IN (SELECT version, {exact_definition} FROM xq_generation
            WHERE queue = {queue} AND kind = 'definition')

--: note_replaced
-- Note when the installed definition is replaced.
UPDATE xq_generation SET at_us = {now_us} WHERE queue = {queue} AND kind = 'definition'
    AND (version, {exact_definition}) = (SELECT version, fingerprint FROM xq_queue WHERE name = {queue})

--: note_durations
-- Note a definition with other durations in the place of what it had before.
UPDATE xq_generation SET definition = :definition WHERE queue = {queue} AND kind = 'definition' AND generation = :generation

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

-- Pauses.

--: pauses
SELECT tube, whole, since_us, actor, reason FROM xq_pause WHERE queue = {queue}

--: pause
-- Pause the queue, a tube or a group. One that is paused keeps its time, actor and reason.
INSERT INTO xq_pause (queue, tube, whole, since_us, actor, reason)
    VALUES ({queue}, :tube, :whole, {now_us}, :actor, :reason) {unless:queue, tube, whole}

--: resume
-- Resume the queue, a tube or a group.
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
SELECT queue, name, next_us - {now_us} FROM xq_schedule WHERE next_us IS NOT NULL AND paused IS NULL

--: add_schedule
-- Add a schedule, unless there is one of this name. On a server this locks that one.
INSERT INTO xq_schedule (queue, name, spec, task, next_us) VALUES ({queue}, :name, :spec, :task, :next_us)
    {unless:queue, name}

--: schedule
-- A schedule by its name, locked to be changed.
SELECT spec, task, next_us FROM xq_schedule WHERE queue = {queue} AND name = :name {lock}

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

-- Limits, in {limits}. `value` is the key of a value, '' for the queue; `label` is the value, `given` the limit in JSON.

--: limits
-- The defaults (is_set = 0), and what was set.
SELECT feature, label, is_set, given, since_us, actor, reason FROM {limits}
    WHERE feature <> '' ORDER BY feature, label, is_set

--: set_limit
-- Set a limit in place of its default, or of what was set before.
INSERT INTO {limits} (feature, value, is_set, label, n, slack, given, since_us, actor, reason)
    VALUES (:feature, :value, 1, :label, :n, :slack, :given, {now_us}, :actor, :reason){set_anew}

--: unset_limit
-- Remove what was set: the default applies again.
DELETE FROM {limits} WHERE feature = :feature AND value = :value AND is_set = 1

-- Callers that wait for the end of a task, by the {parts} of its key; {values} are those of a call, and {this_key}
-- compares both. Triggers write to a wait how the task ended.

--: begin_wait
-- Begin to wait for the end of a task.
INSERT INTO {waits} ({parts}, waiter, session, since) VALUES ({values}, :waiter, :uuid, {now})

--: end_wait
-- End a wait, and return how the task ended (NULL if it has not).
DELETE FROM {waits} WHERE {this_key} AND waiter = :waiter{event_and_target}

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
