The triggers of a queue: they count each transition, note it in the history, tell those who wait for the end of a task,
and keep heads.

{old} and {new} are the states of a row before and after, 'X' where it is no task. {was} and {is} are the conditions
that it was and is one. If the history counts, each of its rows is a transition, and the counters are the sums of the
rows up to an id, {counted_up_to}, which is in a row of its own ({is_mark}).

--: insert
CREATE TRIGGER {name} AFTER INSERT ON {table} WHEN {is} BEGIN {effects:insert}{heads:insert} END

--: update
-- An ordinary transition. The next trigger has the others.
CREATE TRIGGER {name} AFTER UPDATE OF {status} ON {table}
--? history
    -- A statement of xq that writes a status is a transition, even if the status stays the same.
    WHEN ({other_status} OR {event_name} <> 'write') AND ({was} OR {is}) AND NOT {other_task}
--? not history
    WHEN {other_status} AND ({was} OR {is}) AND NOT {other_task}
--? end
BEGIN {effects:same} END

--: update_task
-- A task that changes its key or its tube. Here the history does not count: its rows are others than the counters need.
CREATE TRIGGER {name} AFTER UPDATE OF {identity} ON {table} WHEN {other_task} AND ({was} OR {is}) BEGIN
--? history_counts
    UPDATE {count} SET n = {newest} WHERE {is_mark};
    DELETE FROM {count} WHERE {is_mark};
--? end
    {effects:update}
--? history_counts
    INSERT INTO {count} VALUES ('', '', '', {newest});
--? end
END

--: left
-- A row that leaves the queue keeps no timer, which a later entry would have.
CREATE TRIGGER {name} AFTER UPDATE OF {status} ON {table} WHEN {has_left} BEGIN
    UPDATE {table} SET {emptied} WHERE {its_row};
END

--: update_heads
CREATE TRIGGER {name} AFTER UPDATE OF {watched} ON {table} BEGIN{heads:update} END

--: delete
CREATE TRIGGER {name} AFTER DELETE ON {table} WHEN {was} BEGIN {effects:delete}{heads:delete} END

--: own
-- What other columns than the status, the key and the tube have to do with.
CREATE TRIGGER {name} AFTER UPDATE{of} ON {table} WHEN {when} BEGIN {effects:update} END

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
