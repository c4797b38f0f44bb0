The texts about groups, in {group_table}, for every database. `done` is NULL until all {members} of a sealed group have
ended; `killed` of them went otherwise than by an ack. With `runs` a buried one has ended. {has_ended} is the condition
that none is left.

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

--: first_members
-- The first members of a group, with their states.
SELECT {keys}, {state} FROM {tasks} WHERE {of_group} ORDER BY {keys} LIMIT :n

--: links
-- The links of a group's members to what they wait for; empty if tasks wait for none.
{links}
