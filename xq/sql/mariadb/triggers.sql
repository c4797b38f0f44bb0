The triggers of a queue: they count each transition, note it in the history, tell those who wait for the end of a task,
count the taken tasks of groups, and note which may have another first task.

old_state and new_state are the states of a row before and after, 'X' where it is no task.

--: declared
-- The event context, for the history.
--? history
    DECLARE event_name {text} DEFAULT {event};
    DECLARE at_us BIGINT DEFAULT {at};
    DECLARE by_actor {text} DEFAULT IF(event_name <> 'write', {by_actor}, NULL);
    DECLARE by_reason {reason} DEFAULT IF(event_name <> 'write', {by_reason}, NULL);
--? end

--: insert
CREATE OR REPLACE TRIGGER {name} AFTER INSERT ON {table} FOR EACH ROW BEGIN
    DECLARE new_state CHAR(1) CHARACTER SET ascii DEFAULT {new};
--= declared
    IF new_state <> 'X' THEN
        INSERT INTO {count} (tube, source, target, n) VALUES ('', 'X', new_state, 1);
    END IF;
--? tubes
    IF new_state <> 'X' AND {is_counted} THEN
        INSERT INTO {count} (tube, source, target, n) VALUES ({new_tube}, 'X', new_state, 1);
    END IF;
--? history
    IF new_state <> 'X' THEN
        INSERT INTO {history} ({noted}) VALUES ({new_key}, {new_tube}, {new_attempt}, at_us, 'X', new_state, event_name,
                IF(new_state = 'T', {new_owner}, NULL), by_actor, by_reason);
    END IF;
--? groups
    {groups}
--? end
END

--: update
CREATE OR REPLACE TRIGGER {name} AFTER UPDATE ON {table} FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER SET ascii DEFAULT {old};
    DECLARE new_state CHAR(1) CHARACTER SET ascii DEFAULT {new};
    DECLARE other_key BOOLEAN DEFAULT {other_key};
--= declared
    -- Another program takes a task out of taken, or out of a finished state into another one.
    IF {is_stale} AND {event_name} = 'write' THEN
--? refuses
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = {refusal};
--? not refuses
        -- The counter is that of xq.core.counters.counter_of.
        INSERT INTO {count} (tube, source, target, n)
            VALUES (CONCAT(old_state, '-', new_state, ' write'), '{elsewhere}', '{elsewhere}', 1);
--? end
    END IF;
    IF old_state <> new_state THEN
        INSERT INTO {count} (tube, source, target, n) VALUES ('', old_state, new_state, 1);
    END IF;
--? tubes
    IF NOT {other_tube} AND {is_counted} AND old_state <> new_state THEN
        INSERT INTO {count} (tube, source, target, n) VALUES ({new_tube}, old_state, new_state, 1);
    END IF;
    -- A task that changes its tube leaves one and enters the other: '-' is the other tube.
    IF {other_tube} AND {was_counted} AND old_state <> 'X' THEN
        INSERT INTO {count} (tube, source, target, n)
            VALUES ({old_tube}, old_state, IF(new_state <> 'X', '{elsewhere}', 'X'), 1);
    END IF;
    IF {other_tube} AND {is_counted} AND new_state <> 'X' THEN
        INSERT INTO {count} (tube, source, target, n)
            VALUES ({new_tube}, IF(old_state <> 'X', '{elsewhere}', 'X'), new_state, 1);
    END IF;
--? history
    -- A task whose key changes is another task.
    IF other_key AND old_state <> 'X' THEN
        INSERT INTO {history} ({noted}) VALUES ({old_key}, {old_tube}, {old_attempt}, at_us, old_state, 'X', event_name,
                IF(old_state = 'T', {old_owner}, NULL), by_actor, by_reason);
    END IF;
    IF other_key AND new_state <> 'X' THEN
        INSERT INTO {history} ({noted}) VALUES ({new_key}, {new_tube}, {new_attempt}, at_us, 'X', new_state, event_name,
                IF(new_state = 'T', {new_owner}, NULL), by_actor, by_reason);
    END IF;
    -- A statement of xq that writes a status is a transition, even if the status stays the same.
    IF NOT other_key AND (old_state <> 'X' OR new_state <> 'X') AND ({other_status} OR event_name <> 'write') THEN
        INSERT INTO {history} ({noted})
            VALUES ({new_key}, {new_tube}, {new_attempt}, at_us, old_state, new_state, event_name,
                CASE 'T' WHEN old_state THEN {old_owner} WHEN new_state THEN {new_owner} END, by_actor, by_reason);
    END IF;
--? end
    IF old_state IN ({pending}) AND (new_state NOT IN ({pending}) OR other_key) AND EXISTS (SELECT 1 FROM {wait}) THEN
        UPDATE {wait} SET event = {event}, target = IF(other_key, 'X', new_state) WHERE {its_wait} AND event IS NULL;
    END IF;
--? after
    IF {leaves} THEN
        DELETE FROM {links} WHERE {its_child};
    END IF;
    IF {may_end} THEN
        UPDATE {links} SET state = {ended} WHERE {its_parent} AND state IN ('', 'B');
    END IF;
--? members
    IF {was_unfinished} AND new_state = 'X' AND {event_name} <> 'ack' THEN
        UPDATE {group} SET killed = killed + 1 WHERE name = {old_group};
    END IF;
    IF {was_unfinished} AND {other_group} THEN
        UPDATE {group} SET total = total - 1 WHERE name = {old_group};
    END IF;
--? groups
    {groups}
--? end
END

--: left
-- A row that leaves the queue keeps no timer, which a later entry would have.
CREATE OR REPLACE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW BEGIN
    IF {has_left} THEN
        SET {emptied};
    END IF;
END

--: delete
CREATE OR REPLACE TRIGGER {name} AFTER DELETE ON {table} FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER SET ascii DEFAULT {old};
--= declared
    IF old_state <> 'X' THEN
        INSERT INTO {count} (tube, source, target, n) VALUES ('', old_state, 'X', 1);
    END IF;
--? tubes
    IF old_state <> 'X' AND {was_counted} THEN
        INSERT INTO {count} (tube, source, target, n) VALUES ({old_tube}, old_state, 'X', 1);
    END IF;
--? history
    IF old_state <> 'X' THEN
        INSERT INTO {history} ({noted}) VALUES ({old_key}, {old_tube}, {old_attempt}, at_us, old_state, 'X', event_name,
                IF(old_state = 'T', {old_owner}, NULL), by_actor, by_reason);
    END IF;
--? end
    IF old_state IN ({pending}) AND EXISTS (SELECT 1 FROM {wait}) THEN
        UPDATE {wait} SET event = {event}, target = 'X' WHERE {its_wait} AND event IS NULL;
    END IF;
--? after
    IF {waited} THEN
        DELETE FROM {links} WHERE {its_child};
    END IF;
    IF old_state <> 'X' THEN
        UPDATE {links} SET state = {ended_by_delete} WHERE {its_parent} AND state IN ('', 'B');
    END IF;
--? members
    IF {was_unfinished} AND {event_name} <> 'ack' THEN
        UPDATE {group} SET killed = killed + 1 WHERE name = {old_group};
    END IF;
--? groups
    {groups}
--? end
END

--: group_changed
IF ({when}) THEN
    BEGIN
        -- By SELECT INTO, which locks nothing. A head that is there has its limit.
        DECLARE xq_limit BIGINT;
        IF ({taken} <> 0) THEN
            SELECT most INTO xq_limit FROM {heads} WHERE utube = {utube};
            IF (xq_limit IS NULL) THEN
                SELECT {limit} INTO xq_limit;
            END IF;
--? fair
            INSERT INTO {heads} (utube, taken, n, most, served)
                VALUES ({utube}, {taken}, xq_limit, xq_limit, IF({taken} > 0, {now_served}, 0)){adding};
--? not fair
            INSERT INTO {heads} (utube, taken, n, most) VALUES ({utube}, {taken}, xq_limit, xq_limit){adding};
--? end
        END IF;
        -- The head of a full group needs no first task.
        IF ({taken} > 0) THEN
            SELECT taken < most INTO xq_limit FROM {heads} WHERE utube = {utube};
        END IF;
        IF ({taken} <= 0 OR xq_limit) THEN
            INSERT INTO {dirty_groups} (utube, writer) VALUES ({utube}, {me});
        END IF;
    END;
END IF;
