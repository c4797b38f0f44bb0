The triggers of a queue: they count each transition, note it in the history, tell those who wait for the end of a task,
and keep the heads of groups.

{old} and {new} are the states of a row before and after, 'X' where it is no task. {was} and {is} are the conditions
that it was and is one. If the history counts, each of its rows is a transition, and the counters are the sums of the
rows up to an id, {counted_up_to}, which is in a row of its own ({is_mark}).

--: insert
CREATE TRIGGER {name} AFTER INSERT ON {table} WHEN {is} BEGIN
--? counters
    INSERT INTO {count} VALUES ('', 'X', {new}, 1) ON CONFLICT DO UPDATE SET n = n + 1;
--? counters_of_tubes
    INSERT INTO {count} SELECT {new_tube}, 'X', {new}, 1 WHERE {is_counted} ON CONFLICT DO UPDATE SET n = n + 1;
--? history
    INSERT INTO {history} ({noted}) VALUES ({new_key}, {new_tube}, {new_attempt}, {at}, 'X', {new}, {event},
            CASE WHEN {is_taken} THEN {new_owner} END, {by_actor}, {by_reason});
--? groups
    {groups}
--? end
END

--: stale
-- Another program takes a task out of taken, or out of a finished state into another one. The counter is that of xq.core.counters.counter_of.
--? refuses
    SELECT RAISE(ABORT, {refusal}) WHERE {is_stale} AND {event} = 'write';
--? not refuses
    INSERT INTO {count} SELECT {old} || '-' || {new} || ' write', '{elsewhere}', '{elsewhere}', 1
        WHERE {is_stale} AND {event} = 'write' ON CONFLICT DO UPDATE SET n = n + 1;
--? end

--: update
-- An ordinary transition. The next trigger has the others.
CREATE TRIGGER {name} AFTER UPDATE OF {status} ON {table}
--? history
    -- A statement of xq that writes a status is a transition, even if the status stays the same.
    WHEN ({other_status} OR {event} <> 'write') AND ({was} OR {is}) AND NOT ({other_task})
--? not history
    WHEN {other_status} AND ({was} OR {is}) AND NOT ({other_task})
--? end
BEGIN
--= stale
--? counters
    INSERT INTO {count} SELECT '', {old}, {new}, 1 WHERE {old} <> {new} ON CONFLICT DO UPDATE SET n = n + 1;
--? counters_of_tubes
    INSERT INTO {count} SELECT {new_tube}, {old}, {new}, 1 WHERE {is_counted} AND {old} <> {new}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? end
    UPDATE {wait} SET event = {event}, target = {new}
        WHERE {its_wait} AND event IS NULL AND {was_pending} AND ({is_pending}) IS NOT TRUE;
--? members
    UPDATE {group} SET killed = killed + 1
        WHERE name = {old_group} AND {was_unfinished} AND {new} = 'X' AND {event} <> 'ack';
--? history
    INSERT INTO {history} ({noted}) VALUES ({new_key}, {new_tube}, {new_attempt}, {at}, {old}, {new}, {event},
            CASE WHEN {was_taken} THEN {old_owner} WHEN {is_taken} THEN {new_owner} END, {by_actor}, {by_reason});
--? end
END

--: update_task
-- A task that changes its key or its tube. Here the history does not count: its rows are others than the counters need.
CREATE TRIGGER {name} AFTER UPDATE OF {identity} ON {table} WHEN ({other_task}) AND ({was} OR {is}) BEGIN
--= stale
--? history_counts
    UPDATE {count} SET n = {newest} WHERE {is_mark};
    DELETE FROM {count} WHERE {is_mark};
--? end
    INSERT INTO {count} SELECT '', {old}, {new}, 1 WHERE {old} <> {new} ON CONFLICT DO UPDATE SET n = n + 1;
--? tubes
    INSERT INTO {count} SELECT {new_tube}, {old}, {new}, 1 WHERE NOT {other_tube} AND {is_counted} AND {old} <> {new}
        ON CONFLICT DO UPDATE SET n = n + 1;
    -- A task that changes its tube leaves one and enters the other: '{elsewhere}' is the other tube.
    INSERT INTO {count} SELECT {old_tube}, {old}, CASE WHEN {surely_is} THEN '{elsewhere}' ELSE 'X' END, 1
        WHERE {other_tube} AND {was_counted} AND {surely_was}
        ON CONFLICT DO UPDATE SET n = n + 1;
    INSERT INTO {count} SELECT {new_tube}, CASE WHEN {surely_was} THEN '{elsewhere}' ELSE 'X' END, {new}, 1
        WHERE {other_tube} AND {is_counted} AND {surely_is}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? end
    UPDATE {wait} SET event = {event}, target = CASE WHEN {other_key} THEN 'X' ELSE {new} END
        WHERE {its_wait} AND event IS NULL AND {was_pending} AND (({is_pending}) IS NOT TRUE OR {other_key});
--? history
    INSERT INTO {history} ({noted}) SELECT {new_key}, {new_tube}, {new_attempt}, {at}, {old}, {new}, {event},
            CASE WHEN {was_taken} THEN {old_owner} WHEN {is_taken} THEN {new_owner} END, {by_actor}, {by_reason}
        WHERE NOT ({other_key}) AND ({other_status} OR {event} <> 'write');
    -- A task whose key changes is another task.
    INSERT INTO {history} ({noted}) SELECT {old_key}, {old_tube}, {old_attempt}, {at}, {old}, 'X', {event},
            CASE WHEN {was_taken} THEN {old_owner} END, {by_actor}, {by_reason}
        WHERE ({other_key}) AND {was};
    INSERT INTO {history} ({noted}) SELECT {new_key}, {new_tube}, {new_attempt}, {at}, 'X', {new}, {event},
            CASE WHEN {is_taken} THEN {new_owner} END, {by_actor}, {by_reason}
        WHERE ({other_key}) AND {is};
--? history_counts
    INSERT INTO {count} VALUES ('', '', '', {newest});
--? end
END

--: left
-- A row that leaves the queue keeps no timer, which a later entry would have.
CREATE TRIGGER {name} AFTER UPDATE OF {status} ON {table} WHEN {has_left} BEGIN
    UPDATE {table} SET {emptied} WHERE {its_row};
END

--: update_utube
CREATE TRIGGER {name} AFTER UPDATE OF {watched} ON {table} BEGIN {groups} END

--: update_group
-- A member that leaves its group has not ended.
CREATE TRIGGER {name} AFTER UPDATE OF {its_group} ON {table} WHEN {was_unfinished} AND {other_group} BEGIN
    UPDATE {group} SET total = total - 1 WHERE name = {old_group};
END

--: delete
CREATE TRIGGER {name} AFTER DELETE ON {table} WHEN {was} BEGIN
--? counters
    INSERT INTO {count} VALUES ('', {old}, 'X', 1) ON CONFLICT DO UPDATE SET n = n + 1;
--? counters_of_tubes
    INSERT INTO {count} SELECT {old_tube}, {old}, 'X', 1 WHERE {was_counted} ON CONFLICT DO UPDATE SET n = n + 1;
--? end
    UPDATE {wait} SET event = {event}, target = 'X' WHERE {its_wait} AND event IS NULL AND {was_pending};
--? members
    UPDATE {group} SET killed = killed + 1
        WHERE name = {old_group} AND {was_unfinished} AND {event} <> 'ack';
--? history
    INSERT INTO {history} ({noted}) VALUES ({old_key}, {old_tube}, {old_attempt}, {at}, {old}, 'X', {event},
            CASE WHEN {was_taken} THEN {old_owner} END, {by_actor}, {by_reason});
--? after
    DELETE FROM {links} WHERE {its_child} AND {waited};
    UPDATE {links} SET state = {ended_by_delete} WHERE {its_parent} AND state IN ('', 'B');
--? groups
    {groups}
--? end
END

--: after_update
CREATE TRIGGER {name} AFTER UPDATE OF {ending} ON {table} WHEN {may_end} OR {leaves} BEGIN
    DELETE FROM {links} WHERE {its_child} AND {leaves};
    UPDATE {links} SET state = {ended} WHERE {its_parent} AND state IN ('', 'B') AND {may_end};
END

--: add_up
-- Moving the mark forward adds up the rows that it passes.
CREATE TRIGGER {name} AFTER UPDATE OF n ON {count} WHEN NEW.target = '' BEGIN
    INSERT INTO {count} SELECT '', source, target, COUNT(*) FROM {history}
        WHERE id > OLD.n AND id <= NEW.n AND source <> target GROUP BY 2, 3
        ON CONFLICT DO UPDATE SET n = n + excluded.n;
--? tubes
    INSERT INTO {count} SELECT tube, source, target, COUNT(*) FROM {history}
        WHERE id > OLD.n AND id <= NEW.n AND source <> target AND {counted_in_history} GROUP BY 1, 2, 3
        ON CONFLICT DO UPDATE SET n = n + excluded.n;
--? end
END

--: noted
CREATE TRIGGER {name} AFTER INSERT ON {history} WHEN NEW.id % {rows} = 0 BEGIN
    UPDATE {count} SET n = NEW.id WHERE {is_mark};
END

--: pruned
-- A row is added up before it goes. The id of the newest row is used again: the mark goes back behind the others.
CREATE TRIGGER {name} BEFORE DELETE ON {history} WHEN OLD.id >= {counted_up_to} BEGIN
    UPDATE {count} SET n = {newest} WHERE {is_mark};
    UPDATE {count} SET n = COALESCE((SELECT MAX(id) FROM {history} WHERE id < OLD.id), 0) WHERE {is_mark} AND n = OLD.id;
END
