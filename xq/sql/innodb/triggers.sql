The triggers of a queue: they count each transition, note it in the history, tell those who wait for the end of a task,
and keep heads.

Each text stands after CREATE TRIGGER. old_state and new_state are the states of a row before and after, 'X' where it is no task.

--: declared
-- The event context, for the history.
--? history
    DECLARE event_name {text} DEFAULT {event};
    DECLARE at_us BIGINT DEFAULT {at};
    DECLARE by_actor {text} DEFAULT IF(event_name <> 'write', {by_actor}, NULL);
    DECLARE by_reason {reason} DEFAULT IF(event_name <> 'write', {by_reason}, NULL);
--? end

--: insert
AFTER INSERT ON {table} FOR EACH ROW BEGIN
    DECLARE new_state CHAR(1) CHARACTER SET ascii DEFAULT {new};
--= declared
    {effects:insert}{heads:insert}
END

--: update
AFTER UPDATE ON {table} FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER SET ascii DEFAULT {old};
    DECLARE new_state CHAR(1) CHARACTER SET ascii DEFAULT {new};
    DECLARE other_key BOOLEAN DEFAULT {other_key};
--= declared
    {effects:update}{heads:update}
END

--: left
-- A row that leaves the queue keeps no timer, which a later entry would have.
BEFORE UPDATE ON {table} FOR EACH ROW BEGIN
    IF {has_left} THEN
        SET {emptied};
    END IF;
END

--: delete
AFTER DELETE ON {table} FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER SET ascii DEFAULT {old};
--= declared
    {effects:delete}{heads:delete}
END
