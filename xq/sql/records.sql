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

-- Groups, in {group_table}. `done` is NULL until all {members} of a sealed group have ended; `killed` of them went
-- otherwise than by an ack. With `runs` a buried one has ended. {has_ended} is the condition that none is left.

--: group
-- A group by its name.
SELECT sealed, done, runs, then_sql, total, killed, opened FROM {group_table} WHERE name = :group

--: lock_group
-- A group, locked to be changed.
SELECT sealed, done, runs, then_sql, total, killed, opened FROM {group_table} WHERE name = :group {lock}

--: open_group
-- Open a group. Its members are not complete before it is sealed.
INSERT INTO {group_table} (name, total, killed, opened, sealed, runs, then_sql)
    VALUES (:group, 0, 0, {now}, 0, :runs, :then)

--: open_group_anew
-- Open a group that is done, for other members.
UPDATE {group_table} SET total = 0, killed = 0, opened = {now}, done = NULL, sealed = 0, runs = :runs, then_sql = :then
    WHERE name = :group

--: leave_group
-- Have the unfinished members of a group be none.
UPDATE {tasks} SET {group} = NULL WHERE {of_group} AND {unfinished}

--: grow_group
-- Count what was added to a group.
UPDATE {group_table} SET total = total + :adding WHERE name = :group

--: seal_group
-- Seal a group: the end of its last member is its own.
UPDATE {group_table} SET sealed = 1 WHERE name = :group

--: follow_group
-- Have other SQL follow the last end of a group.
UPDATE {group_table} SET then_sql = :then WHERE name = :group

--: settle_group
-- End a group if the last of its members has ended, by a function that the triggers call as well. PostgreSQL alone.
SELECT done, then_sql FROM {settle}(:group, 0)

--: may_end_group
-- Finds a row if a group is open, and none of its members is left.
SELECT 1 FROM {group_table} WHERE name = :group AND sealed = 1 AND done IS NULL AND {has_ended}

--: end_group
-- Record that a group is done.
UPDATE {group_table} SET done = {now} WHERE name = :group

--: open_groups
-- The open groups behind a name, in order, and whether none of their members is left.
SELECT xq_g.name, {its_members_ended} FROM {group_table} AS xq_g
    WHERE xq_g.done IS NULL AND xq_g.sealed = 1 AND xq_g.name > :group ORDER BY xq_g.name LIMIT :n

--: names_of_open_groups
SELECT name FROM {group_table} WHERE done IS NULL ORDER BY name

--: held_groups
-- The groups that buried members alone keep open.
SELECT xq_g.name FROM {group_table} AS xq_g WHERE xq_g.done IS NULL AND xq_g.sealed = 1 AND xq_g.runs = 0
    AND {its_others_ended} AND NOT ({its_members_ended}) ORDER BY xq_g.name

--: forget_groups
-- Forget the groups that have been done for long.
DELETE FROM {group_table} WHERE done < {now} - {kept}

--: drop_groups
-- Drop the open groups: nothing follows the ends of their members.
DELETE FROM {group_table} WHERE done IS NULL

--: drop_group_pauses
-- End the pauses of groups that are gone.
DELETE FROM xq_pause WHERE queue = {queue} AND whole = 2
    AND NOT EXISTS (SELECT 1 FROM {group_table} AS g WHERE g.name = xq_pause.tube)

--: states_of_group
-- How many unfinished members a group has in each state.
SELECT {status}, COUNT(*) FROM {members} WHERE {of_group} AND {unfinished} GROUP BY {status}

--: members_of_group
-- The unfinished members of a group: their keys, and their statuses.
SELECT {keys}, {status} FROM {members} WHERE {of_group} AND {unfinished}

--: left_of_group
-- Finds a row if a group has unfinished members, whatever the transaction's snapshot holds.
SELECT 1 FROM {members} WHERE {of_group} AND {unfinished}
    AND ({live} OR 0 = (SELECT runs FROM {group_table} WHERE name = :group)) LIMIT 1{afresh}

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
