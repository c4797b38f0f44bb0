-- A key of two parts, and times that are date-times: delayed, buried, lifetime, ttr, history.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status after WHERE only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name TEXT PRIMARY KEY, version TEXT NOT NULL, fingerprint TEXT NOT NULL);

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid TEXT NOT NULL, queue TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, host TEXT, pid BIGINT, program TEXT, PRIMARY KEY (uuid, queue));

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue TEXT NOT NULL, tube TEXT NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (queue, tube, whole));

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, task TEXT NOT NULL, next_us BIGINT, PRIMARY KEY (queue, name));

-- install: the table xq_rate
CREATE TABLE IF NOT EXISTS xq_rate (queue TEXT NOT NULL, bucket TEXT NOT NULL, full_us BIGINT NOT NULL, PRIMARY KEY (queue, bucket));

-- install: the table xq_operation
CREATE TABLE IF NOT EXISTS xq_operation (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, event TEXT NOT NULL, filter TEXT NOT NULL, options TEXT NOT NULL, actor TEXT, reason TEXT, chunk INTEGER NOT NULL, created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, reached TEXT, done BIGINT NOT NULL, skipped BIGINT NOT NULL, looked BIGINT NOT NULL, state TEXT NOT NULL);

-- install: the table xq_slot
CREATE TABLE IF NOT EXISTS xq_slot (name TEXT NOT NULL, slot INTEGER NOT NULL, session TEXT NOT NULL, PRIMARY KEY (name, slot));

-- install: the table visit_xq_count
CREATE TABLE IF NOT EXISTS "visit_xq_count" (tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID;

-- install: the table visit_xq_wait
CREATE TABLE IF NOT EXISTS "visit_xq_wait" (k0 TEXT, k1 INTEGER, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, target TEXT, PRIMARY KEY (k0, k1, waiter)) WITHOUT ROWID;

-- install: the table visit_xq_owner
CREATE TABLE IF NOT EXISTS "visit_xq_owner" ("host" TEXT, "number" INTEGER, owner TEXT NOT NULL, PRIMARY KEY ("host", "number")) WITHOUT ROWID;

-- install: the table visit_xq_history
CREATE TABLE IF NOT EXISTS "visit_xq_history" (id INTEGER PRIMARY KEY, at_us INTEGER, key TEXT, tube TEXT, source TEXT, target TEXT, event TEXT, owner TEXT, attempt INTEGER, actor TEXT, reason TEXT);

-- install: the table visit_xq_history
INSERT INTO "visit_xq_count"
    SELECT '', '', '', COALESCE(MAX(id), 0) FROM "visit_xq_history"
    WHERE TRUE
    ON CONFLICT DO NOTHING;

-- install: the index visit_xq_oldest_R
CREATE INDEX IF NOT EXISTS "visit_xq_oldest_R"
    ON "visit" ("host", "number")
    WHERE "status" = 'R';

-- install: the index visit_xq_oldest_B
CREATE INDEX IF NOT EXISTS "visit_xq_oldest_B"
    ON "visit" ("host", "number")
    WHERE "status" = 'B';

-- install: the index visit_xq_deadline
CREATE INDEX IF NOT EXISTS "visit_xq_deadline"
    ON "visit" ("status", "deadline")
    WHERE "deadline" IS NOT NULL;

-- install: the index visit_xq_runat
CREATE INDEX IF NOT EXISTS "visit_xq_runat"
    ON "visit" ("status", "runat")
    WHERE "status" = 'T' OR "runat" IS NOT NULL;

-- install: the trigger visit_xq_insert
DROP TRIGGER IF EXISTS "main"."visit_xq_insert";

-- install: the trigger visit_xq_insert
CREATE TRIGGER "visit_xq_insert" AFTER INSERT
    ON "visit" WHEN (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B') BEGIN
    INSERT INTO "visit_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        VALUES (json_array(CASE typeof(NEW."host") WHEN 'blob' THEN hex(NEW."host") ELSE NEW."host" END, CASE typeof(NEW."number") WHEN 'blob' THEN hex(NEW."number") ELSE NEW."number" END), NULL, NULL, MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), 'X', CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, printf('write'), CASE WHEN NEW."status" = 'T' THEN NULLIF(printf('xq_owner'), 'xq_owner') END);
END;

-- install: the trigger visit_xq_update
DROP TRIGGER IF EXISTS "main"."visit_xq_update";

-- install: the trigger visit_xq_update
CREATE TRIGGER "visit_xq_update" AFTER UPDATE OF "status"
    ON "visit" WHEN (OLD."status" IS NOT NEW."status" COLLATE BINARY OR printf('write') <> 'write') AND ((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B') OR (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B')) AND NOT (OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY) BEGIN
    UPDATE "visit_xq_wait"
        SET event = printf('write'),
            target = CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END
        WHERE k0 = OLD."host" AND k1 = OLD."number" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W') AND ((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W')) IS NOT TRUE;
    INSERT INTO "visit_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        VALUES (json_array(CASE typeof(NEW."host") WHEN 'blob' THEN hex(NEW."host") ELSE NEW."host" END, CASE typeof(NEW."number") WHEN 'blob' THEN hex(NEW."number") ELSE NEW."number" END), NULL, NULL, MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, printf('write'), CASE WHEN OLD."status" = 'T' THEN (SELECT owner FROM "visit_xq_owner" WHERE "host" = OLD."host" AND "number" = OLD."number") WHEN NEW."status" = 'T' THEN NULLIF(printf('xq_owner'), 'xq_owner') END);
    DELETE FROM "visit_xq_owner"
        WHERE "host" = OLD."host" AND "number" = OLD."number" AND OLD."status" = 'T' AND OLD."status" IS NOT NEW."status" COLLATE BINARY;
END;

-- install: the trigger visit_xq_update_task
DROP TRIGGER IF EXISTS "main"."visit_xq_update_task";

-- install: the trigger visit_xq_update_task
CREATE TRIGGER "visit_xq_update_task" AFTER UPDATE OF "host", "number"
    ON "visit" WHEN (OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY) AND ((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B') OR (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B')) BEGIN
    UPDATE "visit_xq_count"
        SET n = (SELECT COALESCE(MAX(id), 0) FROM "visit_xq_history")
        WHERE tube = '' AND source = '' AND target = '';
    DELETE FROM "visit_xq_count"
        WHERE tube = '' AND source = '' AND target = '';
    INSERT INTO "visit_xq_count"
        SELECT '', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, 1
        WHERE CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "visit_xq_wait"
        SET event = printf('write'),
            target = CASE WHEN OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY THEN 'X' ELSE CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END END
        WHERE k0 = OLD."host" AND k1 = OLD."number" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W') AND (((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W')) IS NOT TRUE OR OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY);
    INSERT INTO "visit_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT json_array(CASE typeof(NEW."host") WHEN 'blob' THEN hex(NEW."host") ELSE NEW."host" END, CASE typeof(NEW."number") WHEN 'blob' THEN hex(NEW."number") ELSE NEW."number" END), NULL, NULL, MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, printf('write'), CASE WHEN OLD."status" = 'T' THEN (SELECT owner FROM "visit_xq_owner" WHERE "host" = OLD."host" AND "number" = OLD."number") WHEN NEW."status" = 'T' THEN NULLIF(printf('xq_owner'), 'xq_owner') END
        WHERE NOT (OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY) AND (OLD."status" IS NOT NEW."status" COLLATE BINARY OR printf('write') <> 'write');
    INSERT INTO "visit_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT json_array(CASE typeof(OLD."host") WHEN 'blob' THEN hex(OLD."host") ELSE OLD."host" END, CASE typeof(OLD."number") WHEN 'blob' THEN hex(OLD."number") ELSE OLD."number" END), NULL, NULL, MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, 'X', printf('write'), CASE WHEN OLD."status" = 'T' THEN (SELECT owner FROM "visit_xq_owner" WHERE "host" = OLD."host" AND "number" = OLD."number") END
        WHERE (OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY) AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B');
    INSERT INTO "visit_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        SELECT json_array(CASE typeof(NEW."host") WHEN 'blob' THEN hex(NEW."host") ELSE NEW."host" END, CASE typeof(NEW."number") WHEN 'blob' THEN hex(NEW."number") ELSE NEW."number" END), NULL, NULL, MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), 'X', CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, printf('write'), CASE WHEN NEW."status" = 'T' THEN NULLIF(printf('xq_owner'), 'xq_owner') END
        WHERE (OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY) AND (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B');
    DELETE FROM "visit_xq_owner"
        WHERE "host" = OLD."host" AND "number" = OLD."number" AND OLD."status" = 'T' AND (OLD."status" IS NOT NEW."status" COLLATE BINARY OR OLD."host" IS NOT NEW."host" COLLATE BINARY OR OLD."number" IS NOT NEW."number" COLLATE BINARY);
    INSERT INTO "visit_xq_count"
        VALUES ('', '', '', (SELECT COALESCE(MAX(id), 0) FROM "visit_xq_history"));
END;

-- install: the trigger visit_xq_delete
DROP TRIGGER IF EXISTS "main"."visit_xq_delete";

-- install: the trigger visit_xq_delete
CREATE TRIGGER "visit_xq_delete" AFTER DELETE
    ON "visit" WHEN (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B') BEGIN
    UPDATE "visit_xq_wait"
        SET event = printf('write'),
            target = 'X'
        WHERE k0 = OLD."host" AND k1 = OLD."number" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W');
    INSERT INTO "visit_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
        VALUES (json_array(CASE typeof(OLD."host") WHEN 'blob' THEN hex(OLD."host") ELSE OLD."host" END, CASE typeof(OLD."number") WHEN 'blob' THEN hex(OLD."number") ELSE OLD."number" END), NULL, NULL, MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END, 'X', printf('write'), CASE WHEN OLD."status" = 'T' THEN (SELECT owner FROM "visit_xq_owner" WHERE "host" = OLD."host" AND "number" = OLD."number") END);
    DELETE FROM "visit_xq_owner"
        WHERE "host" = OLD."host" AND "number" = OLD."number" AND OLD."status" = 'T';
END;

-- install: the trigger visit_xq_add_up
DROP TRIGGER IF EXISTS "main"."visit_xq_add_up";

-- install: the trigger visit_xq_add_up
CREATE TRIGGER "visit_xq_add_up" AFTER UPDATE OF n
    ON "visit_xq_count" WHEN NEW.target = '' BEGIN
    INSERT INTO "visit_xq_count"
        SELECT '', source, target, COUNT(*) FROM "visit_xq_history"
        WHERE id > OLD.n AND id <= NEW.n AND source <> target
        GROUP BY 2, 3
        ON CONFLICT DO UPDATE
        SET n = n + excluded.n;
END;

-- install: the trigger visit_xq_noted
DROP TRIGGER IF EXISTS "main"."visit_xq_noted";

-- install: the trigger visit_xq_noted
CREATE TRIGGER "visit_xq_noted" AFTER INSERT
    ON "visit_xq_history" WHEN NEW.id % 1000 = 0 BEGIN
    UPDATE "visit_xq_count"
        SET n = NEW.id
        WHERE tube = '' AND source = '' AND target = '';
END;

-- install: the trigger visit_xq_pruned
DROP TRIGGER IF EXISTS "main"."visit_xq_pruned";

-- install: the trigger visit_xq_pruned
CREATE TRIGGER "visit_xq_pruned" BEFORE DELETE
    ON "visit_xq_history" WHEN OLD.id >= (SELECT n FROM "visit_xq_count" WHERE tube = '' AND source = '' AND target = '') BEGIN
    UPDATE "visit_xq_count"
        SET n = (SELECT COALESCE(MAX(id), 0) FROM "visit_xq_history")
        WHERE tube = '' AND source = '' AND target = '';
    UPDATE "visit_xq_count"
        SET n = COALESCE((SELECT MAX(id) FROM "visit_xq_history" WHERE id < OLD.id), 0)
        WHERE tube = '' AND source = '' AND target = '' AND n = OLD.id;
END;

-- install: count what is there
INSERT INTO "visit_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit" WHERE "status" IN ('R', 'T', 'W', 'B') GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "visit_xq_count" WHERE NOT (tube = '' AND source = '' AND target = ''));

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'visit';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('visit', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'R', NULL, strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 300.0, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- X put R: 2
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'R', NULL, strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 300.0, 'unixepoch')), (:f0_1, :f1_1, :f2_1, 'R', NULL, strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 300.0, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- X put R with ttl: 1
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'R', NULL, strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- X put R with ttl: 2
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'R', NULL, strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')), (:f0_1, :f1_1, :f2_1, 'R', NULL, strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- X put W with delay: 1
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'W', strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'), strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 300.0, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- X put W with delay: 2
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'W', strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'), strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 300.0, 'unixepoch')), (:f0_1, :f1_1, :f2_1, 'W', strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'), strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 300.0, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- X put W with delay, ttl: 1
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'W', strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'), strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- X put W with delay, ttl: 2
INSERT INTO "visit" ("host", "number", "note", "status", "runat", "deadline")
    VALUES (:f0_0, :f1_0, :f2_0, 'W', strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'), strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')), (:f0_1, :f1_1, :f2_1, 'W', strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'), strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch'))
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R take T: the oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 60.0, 'unixepoch')
    WHERE ("host", "number") = (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'R' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT 1)
    RETURNING "host", "number", "note", "status", "runat", "deadline";
-- and for each row of these
INSERT OR REPLACE INTO "visit_xq_owner" ("host", "number", owner)
    VALUES (:k0, :k1, :owner);

-- R take T: the n oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 60.0, 'unixepoch')
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'R' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";
-- and for each row of these
INSERT OR REPLACE INTO "visit_xq_owner" ("host", "number", owner)
    VALUES (:k0, :k1, :owner);

-- R take T with ttr: the oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, 'unixepoch')
    WHERE ("host", "number") = (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'R' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT 1)
    RETURNING "host", "number", "note", "status", "runat", "deadline";
-- and for each row of these
INSERT OR REPLACE INTO "visit_xq_owner" ("host", "number", owner)
    VALUES (:k0, :k1, :owner);

-- R take T with ttr: the n oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, 'unixepoch')
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'R' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";
-- and for each row of these
INSERT OR REPLACE INTO "visit_xq_owner" ("host", "number", owner)
    VALUES (:k0, :k1, :owner);

-- T ack X: one, of this session
DELETE FROM "visit"
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T ack X: one, of this very take
DELETE FROM "visit"
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") = :token
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T ack X with update={'note': ...}: one
DELETE FROM "visit"
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", :f2, "status", "runat", "deadline";

-- T release R: one, of this session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release R: one, of this very take
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") = :token
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release R: n of a session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'T' AND ("host", "number") IN (SELECT "host", "number" FROM "visit_xq_owner" WHERE owner >= :session AND owner < :session_end) LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release R: n, whosesoever
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "status" = 'T';

-- T release R: n, whosesoever, returned
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "status" = 'T'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release R with ttl: one, of this session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release R with ttl: one, of this very take
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") = :token
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T snatch R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T snatch R with ttl: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T touch T with increment: one, of this session
UPDATE "visit"
    SET "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :increment, 'unixepoch'),
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE((julianday("runat") - 2440587.5) * 86400.0, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T touch T with increment: one, of this very take
UPDATE "visit"
    SET "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :increment, 'unixepoch'),
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE((julianday("runat") - 2440587.5) * 86400.0, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") = :token
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- W restart R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'W'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- W restart R with ttl: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'W'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R W B switch R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'R'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R W B switch R with ttl: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'R'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R W B switch W with delay: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'R'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R W B switch W with delay, ttl: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'R'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R W B switch B: one
UPDATE "visit"
    SET "status" = 'B',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'R'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R T W B kill X: one
DELETE FROM "visit"
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'R'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- W delay R: n that are due by runat
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_runat" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'W' AND "runat" <= strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch') ORDER BY "runat" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T bury B: one, of this session
UPDATE "visit"
    SET "status" = 'B',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T bury B: one, of this very take
UPDATE "visit"
    SET "status" = 'B',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") = :token
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig R: the oldest
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE ("host", "number") = (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT 1)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig R: the n oldest
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'B'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig R with ttl: the oldest
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE ("host", "number") = (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT 1)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig R with ttl: the n oldest
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig R with ttl: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'B'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- R W B lifetime X: n that are due by deadline
DELETE FROM "visit"
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_deadline" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'R' AND "deadline" <= strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch') ORDER BY "deadline" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T lifetime R: n that are due by deadline
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_deadline" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'T' AND "deadline" <= strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch') ORDER BY "deadline" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T ttr R: n that are due by runat
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_runat" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'T' AND "runat" <= strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch') ORDER BY "runat" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release W with delay: one, of this session
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release W with delay: one, of this very take
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") = :token
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release W with delay, ttl: one, of this session
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND substr((SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number"), 1, 37) = :session
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T release W with delay, ttl: one, of this very take
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T' AND (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") = :token
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T snatch W with delay: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- T snatch W with delay, ttl: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'T'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- W restart W with delay: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'W'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- W restart W with delay, ttl: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'W'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig W with delay: the oldest
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE ("host", "number") = (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT 1)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig W with delay: the n oldest
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig W with delay: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', (julianday("deadline") - 2440587.5) * 86400.0 + :delay, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'B'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig W with delay, ttl: the oldest
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE ("host", "number") = (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT 1)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig W with delay, ttl: the n oldest
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE ("host", "number") IN (SELECT "host", "number" FROM "visit" INDEXED BY "visit_xq_oldest_B" WHERE "host" IS NOT NULL AND "number" IS NOT NULL AND "status" = 'B' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) ORDER BY "host", "number" LIMIT :n)
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- B dig W with delay, ttl: one
UPDATE "visit"
    SET "status" = 'W',
        "runat" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, 'unixepoch'),
        "deadline" = strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + :ttl, 'unixepoch')
    WHERE "host" = :k0 AND "number" = :k1 AND "status" = 'B'
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- kill in RTWB: n, whosesoever
DELETE FROM "visit"
    WHERE "status" IN ('R', 'T', 'W', 'B');

-- kill in RTWB: n, whosesoever, returned
DELETE FROM "visit"
    WHERE "status" IN ('R', 'T', 'W', 'B')
    RETURNING "host", "number", "note", "status", "runat", "deadline";

-- before a kill in each of several states, of which events are counted
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- look at one task, and at who holds it
SELECT "host", "number", "note", "status", "runat", "deadline", (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") FROM "visit"
    WHERE "host" = :k0 AND "number" = :k1;

-- R T W B by_state
SELECT "host", "number", "note", "status", "runat", "deadline" FROM "visit"
    WHERE "status" = 'R'
    ORDER BY "host", "number" LIMIT :n;

-- taken
SELECT "host", "number", (SELECT o.owner FROM "visit_xq_owner" AS o WHERE o."host" = "visit"."host" AND o."number" = "visit"."number") FROM "visit"
    WHERE "status" = 'T';

-- stats
SELECT tube, source, target, SUM(n) AS n, 1 FROM (SELECT tube, source, target, n FROM "visit_xq_count" WHERE NOT (tube = '' AND source = '' AND target = '') UNION ALL SELECT '', source, target, 1 FROM "visit_xq_history" WHERE id > (SELECT n FROM "visit_xq_count" WHERE tube = '' AND source = '' AND target = '') AND source <> target)
    GROUP BY 1, 2, 3;

-- check, recount: what the table holds
SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit"
    WHERE "status" IN ('R', 'T', 'W', 'B')
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, SUM(n) AS n, 1 FROM (SELECT tube, source, target, n FROM "visit_xq_count" WHERE NOT (tube = '' AND source = '' AND target = '') UNION ALL SELECT '', source, target, 1 FROM "visit_xq_history" WHERE id > (SELECT n FROM "visit_xq_count" WHERE tube = '' AND source = '' AND target = '') AND source <> target)
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit" WHERE "status" IN ('R', 'T', 'W', 'B') GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "visit_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count)
    ON CONFLICT (tube, source, target) DO UPDATE
    SET n = n + :count;

-- history
SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", dur_us FROM (SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", CASE WHEN source <> 'X' THEN MAX(0, at_us - LAG(at_us) OVER (PARTITION BY "key" ORDER BY id)) END AS dur_us FROM "visit_xq_history") AS noted
    ORDER BY id;

-- history of a task, from one moment to another
SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", dur_us FROM (SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", CASE WHEN source <> 'X' THEN MAX(0, at_us - LAG(at_us) OVER (PARTITION BY "key" ORDER BY id)) END AS dur_us FROM "visit_xq_history" WHERE "key" = json_array(CASE typeof(:k0) WHEN 'blob' THEN hex(:k0) ELSE :k0 END, CASE typeof(:k1) WHEN 'blob' THEN hex(:k1) ELSE :k1 END)) AS noted
    WHERE at_us >= :since AND at_us < :until
    ORDER BY id;

-- reconfigure: tell the history of tasks in R that move to B
INSERT INTO "visit_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner")
    SELECT json_array(CASE typeof("visit"."host") WHEN 'blob' THEN hex("visit"."host") ELSE "visit"."host" END, CASE typeof("visit"."number") WHEN 'blob' THEN hex("visit"."number") ELSE "visit"."number" END), NULL, NULL, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER), 'R', 'B', :event, NULL FROM "visit"
    WHERE "status" = 'R';

-- on_change: whether a change was committed
CREATE TEMP TABLE IF NOT EXISTS xq_savepoint (number INTEGER PRIMARY KEY);

-- on_change: whether a change was committed
INSERT INTO xq_savepoint (number)
    VALUES (:savepoint)
    RETURNING number;

-- on_change: whether a change was committed
DELETE FROM xq_savepoint
    WHERE number = :savepoint
    RETURNING number;

-- what is installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'visit';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_operation
DELETE FROM xq_operation
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'visit';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- act: forget the operations that ended long ago
DELETE FROM xq_operation
    WHERE queue = 'visit' AND state <> 'running' AND chunk > 0 AND updated_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) - :kept_us;

-- sessions
SELECT uuid, since FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- sessions: which process each is of
SELECT uuid, since, host, pid, program FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session: which process it is of
SELECT host, pid, program FROM xq_session
    WHERE uuid = :uuid AND queue = '';

-- session: that it is there, and may hold tasks of this queue
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    VALUES (:uuid, '', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program), (:uuid, 'visit', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program)
    ON CONFLICT (uuid, queue) DO NOTHING;

-- session: go on, for good or for a while
UPDATE xq_session
    SET ends = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease,
        host = :host,
        pid = :pid,
        program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- session: join
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- session: end later, with session_ttr
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid = :uuid AND (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session: whether it is to end
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends IS NOT NULL;

-- session: whether it is over
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0);

-- session: end
DELETE FROM xq_session
    WHERE uuid = :uuid AND queue = :queue;

-- sessions: who lives, where, and for how long
SELECT uuid, queue, ends - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) FROM xq_session;

-- configure
INSERT INTO xq_setting (name, value)
    VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE
    SET value = :value;

-- pause
INSERT INTO xq_pause (queue, tube, whole)
    VALUES ('visit', :tube, :whole)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'visit' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('visit', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'visit' AND name = :name;

-- every: another schedule; and the next firing of one that fires
UPDATE xq_schedule
    SET spec = :spec,
        task = :task,
        next_us = :next_us
    WHERE queue = 'visit' AND name = :name;

-- unschedule
DELETE FROM xq_schedule
    WHERE queue = 'visit' AND name = :name;

-- schedules
SELECT name, spec, task, next_us FROM xq_schedule
    WHERE queue = 'visit' AND next_us IS NOT NULL
    ORDER BY name;

-- when schedules fire
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE queue = 'visit' AND name = :name AND next_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- wait: begin
INSERT INTO "visit_xq_wait" (k0, k1, waiter, session, since)
    VALUES (:k0, :k1, :waiter, :uuid, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- wait: how tasks ended
SELECT waiter, event, target FROM "visit_xq_wait"
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM "visit_xq_wait"
    WHERE k0 = :k0 AND k1 = :k1 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM "visit_xq_wait"
    WHERE session = :uuid;

-- waiting
SELECT k0, k1, session, since FROM "visit_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1 FROM "visit" INDEXED BY "visit_xq_oldest_R"
    WHERE "status" = 'R' AND ("deadline" IS NULL OR "deadline" > strftime('%Y-%m-%d %H:%M:%f', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), 'unixepoch')) LIMIT 1;

-- when something falls due
SELECT MIN(at) - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) FROM (SELECT (SELECT (julianday("deadline") - 2440587.5) * 86400.0 FROM "visit" INDEXED BY "visit_xq_deadline" WHERE "status" = 'T' AND "deadline" IS NOT NULL ORDER BY "deadline" LIMIT 1) AS at UNION ALL SELECT (SELECT (julianday("runat") - 2440587.5) * 86400.0 FROM "visit" INDEXED BY "visit_xq_runat" WHERE "status" = 'T' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at UNION ALL SELECT (SELECT (julianday("runat") - 2440587.5) * 86400.0 FROM "visit" INDEXED BY "visit_xq_runat" WHERE "status" = 'W' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at UNION ALL SELECT (SELECT (julianday("deadline") - 2440587.5) * 86400.0 FROM "visit" INDEXED BY "visit_xq_deadline" WHERE "status" = 'R' AND "deadline" IS NOT NULL ORDER BY "deadline" LIMIT 1) AS at UNION ALL SELECT (SELECT (julianday("deadline") - 2440587.5) * 86400.0 FROM "visit" INDEXED BY "visit_xq_deadline" WHERE "status" = 'W' AND "deadline" IS NOT NULL ORDER BY "deadline" LIMIT 1) AS at UNION ALL SELECT (SELECT (julianday("deadline") - 2440587.5) * 86400.0 FROM "visit" INDEXED BY "visit_xq_deadline" WHERE "status" = 'B' AND "deadline" IS NOT NULL ORDER BY "deadline" LIMIT 1) AS at) AS times;

-- before anything is read within the application's transaction
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- what tasks there are, before another definition is installed
SELECT "status", COUNT(*) FROM "visit"
    GROUP BY 1;
