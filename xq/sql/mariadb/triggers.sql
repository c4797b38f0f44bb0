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
    {effects:insert}{groups}
END

--: update
CREATE OR REPLACE TRIGGER {name} AFTER UPDATE ON {table} FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER SET ascii DEFAULT {old};
    DECLARE new_state CHAR(1) CHARACTER SET ascii DEFAULT {new};
    DECLARE other_key BOOLEAN DEFAULT {other_key};
--= declared
    {effects:update}{groups}
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
    {effects:delete}{groups}
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
