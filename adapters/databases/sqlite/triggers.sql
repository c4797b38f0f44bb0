The triggers of a queue: they count each transition, note it in the history, tell those who wait for the end of a task,
keep the heads of groups, and forget the owner of what is no longer taken.

{old} and {new} are the states of a row before and after, 'X' where it is no task. {was} and {is} are the conditions
that it was and is one.

--: insert
CREATE TRIGGER {name} AFTER INSERT ON {table} BEGIN
    INSERT INTO {count} SELECT '', 'X', {new}, 1 WHERE {is}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? tubes
    INSERT INTO {count} SELECT NEW.{tube}, 'X', {new}, 1 WHERE {is} AND {is_counted}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? history
    INSERT INTO {history} ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT {new_key}, {new_tube}, {new_attempt}, {at}, 'X', {new}, {event},
            CASE WHEN {is_taken} THEN {new_owner} END
        WHERE {is};
--? groups
    {groups}
--? end
END

--: update
CREATE TRIGGER {name} AFTER UPDATE OF {watched} ON {table} BEGIN
    INSERT INTO {count} SELECT '', {old}, {new}, 1 WHERE {old} <> {new}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? tubes
    INSERT INTO {count} SELECT NEW.{tube}, {old}, {new}, 1 WHERE NOT {other_tube} AND {is_counted} AND {old} <> {new}
        ON CONFLICT DO UPDATE SET n = n + 1;
    -- A task that changes its tube leaves one and enters the other: '-' is the other tube.
    INSERT INTO {count} SELECT OLD.{tube}, {old}, CASE WHEN {surely_is} THEN '{elsewhere}' ELSE 'X' END, 1
        WHERE {other_tube} AND {was_counted} AND {surely_was}
        ON CONFLICT DO UPDATE SET n = n + 1;
    INSERT INTO {count} SELECT NEW.{tube}, CASE WHEN {surely_was} THEN '{elsewhere}' ELSE 'X' END, {new}, 1
        WHERE {other_tube} AND {is_counted} AND {surely_is}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? end
    UPDATE {wait} SET event = {event}, target = CASE WHEN {other_key} THEN 'X' ELSE {new} END
        WHERE {its_wait} AND event IS NULL AND {was_pending} AND (({is_pending}) IS NOT TRUE OR {other_key});
--? history
    -- A statement of xq that writes a status is a transition, even if the status stays the same.
    INSERT INTO {history} ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT {new_key}, {new_tube}, {new_attempt}, {at}, {old}, {new}, {event},
            CASE WHEN {was_taken} THEN {old_owner} WHEN {is_taken} THEN {new_owner} END
        WHERE NOT ({other_key}) AND ({was} OR {is}) AND ({other_status} OR {event} <> 'write');
    -- A task whose key changes is another task.
    INSERT INTO {history} ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT {old_key}, {old_tube}, {old_attempt}, {at}, {old}, 'X', {event},
            CASE WHEN {was_taken} THEN {old_owner} END
        WHERE ({other_key}) AND {was};
    INSERT INTO {history} ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT {new_key}, {new_tube}, {new_attempt}, {at}, 'X', {new}, {event},
            CASE WHEN {is_taken} THEN {new_owner} END
        WHERE ({other_key}) AND {is};
--? groups
    {groups}
--? owners
    DELETE FROM {owner} WHERE {its_owner} AND {was_taken} AND ({other_status} OR {other_key});
--? end
END

--: delete
CREATE TRIGGER {name} AFTER DELETE ON {table} BEGIN
    INSERT INTO {count} SELECT '', {old}, 'X', 1 WHERE {was}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? tubes
    INSERT INTO {count} SELECT OLD.{tube}, {old}, 'X', 1 WHERE {was} AND {was_counted}
        ON CONFLICT DO UPDATE SET n = n + 1;
--? end
    UPDATE {wait} SET event = {event}, target = 'X' WHERE {its_wait} AND event IS NULL AND {was_pending};
--? history
    INSERT INTO {history} ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT {old_key}, {old_tube}, {old_attempt}, {at}, {old}, 'X', {event},
            CASE WHEN {was_taken} THEN {old_owner} END
        WHERE {was};
--? groups
    {groups}
--? owners
    DELETE FROM {owner} WHERE {its_owner} AND {was_taken};
--? end
END
