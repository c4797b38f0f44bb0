-- Every role of a queue with tubes that are counted: owner, attempts, priority, own ttl and ttr; history.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name TEXT PRIMARY KEY, version TEXT NOT NULL, fingerprint TEXT NOT NULL);

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid TEXT NOT NULL, queue TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, host TEXT, pid BIGINT, program TEXT, PRIMARY KEY (uuid, queue));

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue TEXT NOT NULL, tube TEXT NOT NULL, whole INTEGER NOT NULL, since_us BIGINT, actor TEXT, reason TEXT, PRIMARY KEY (queue, tube, whole));

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, task TEXT NOT NULL, next_us BIGINT, last_us BIGINT, paused INTEGER, paused_us BIGINT, actor TEXT, reason TEXT, PRIMARY KEY (queue, name));

-- install: the table xq_rate
CREATE TABLE IF NOT EXISTS xq_rate (queue TEXT NOT NULL, bucket TEXT NOT NULL, full_us BIGINT NOT NULL, PRIMARY KEY (queue, bucket));

-- install: the table xq_generation
CREATE TABLE IF NOT EXISTS xq_generation (queue TEXT NOT NULL, kind TEXT NOT NULL, generation INTEGER NOT NULL, version TEXT NOT NULL, definition TEXT NOT NULL, at_us BIGINT NOT NULL, PRIMARY KEY (queue, kind, generation));

-- install: the table xq_object
CREATE TABLE IF NOT EXISTS xq_object (queue TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (queue, name));

-- install: the table xq_slot
CREATE TABLE IF NOT EXISTS xq_slot (name TEXT NOT NULL, slot INTEGER NOT NULL, session TEXT NOT NULL, PRIMARY KEY (name, slot));

-- install: the table mail_xq_count
CREATE TABLE IF NOT EXISTS "mail_xq_count" (tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID;

-- install: the table mail_xq_wait
CREATE TABLE IF NOT EXISTS "mail_xq_wait" (k0 INTEGER, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, target TEXT, PRIMARY KEY (k0, waiter)) WITHOUT ROWID;

-- install: the table mail_xq_history
CREATE TABLE IF NOT EXISTS "mail_xq_history" (id INTEGER PRIMARY KEY, at_us INTEGER, key TEXT, tube TEXT, source TEXT, target TEXT, event TEXT, owner TEXT, attempt INTEGER, actor TEXT, reason TEXT);

-- install: the table mail_xq_history
INSERT INTO "mail_xq_count"
    SELECT '', '', '', COALESCE(MAX(id), 0) FROM "mail_xq_history"
    WHERE TRUE
    ON CONFLICT DO NOTHING;

-- install: the index mail_xq_oldest_R
CREATE INDEX IF NOT EXISTS "mail_xq_oldest_R" ON "mail" ("priority", "id")
    WHERE "status" = 'R';

-- install: the index mail_xq_oldest_R_of_tube
CREATE INDEX IF NOT EXISTS "mail_xq_oldest_R_of_tube" ON "mail" ("tube", "priority", "id")
    WHERE "status" = 'R' AND "tube" IS NOT NULL;

-- install: the index mail_xq_oldest_B
CREATE INDEX IF NOT EXISTS "mail_xq_oldest_B" ON "mail" ("priority", "id")
    WHERE "status" = 'B';

-- install: the index mail_xq_runat
CREATE INDEX IF NOT EXISTS "mail_xq_runat" ON "mail" ("status", "runat")
    WHERE "status" = 'T' OR "runat" IS NOT NULL;

-- install: the trigger mail_xq_insert
DROP TRIGGER IF EXISTS "main"."mail_xq_insert";

-- install: the trigger mail_xq_insert
CREATE TRIGGER "mail_xq_insert" AFTER INSERT ON "mail" WHEN (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z') BEGIN
    INSERT INTO "mail_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner", "actor", "reason")
    VALUES (CASE typeof(NEW."id") WHEN 'blob' THEN hex(NEW."id") ELSE NEW."id" END, NEW."tube", NEW."attempts", MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), 'X', CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, printf('write'), CASE WHEN NEW."status" = 'T' THEN NEW."owner" END, NULLIF(printf('xq_actor'), 'xq_actor'), NULLIF(printf('xq_reason'), 'xq_reason'));
END;

-- install: the trigger mail_xq_update
DROP TRIGGER IF EXISTS "main"."mail_xq_update";

-- install: the trigger mail_xq_update
CREATE TRIGGER "mail_xq_update" AFTER UPDATE OF "status" ON "mail" WHEN (OLD."status" IS NOT NEW."status" COLLATE BINARY OR printf('write') <> 'write') AND ((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z') OR (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z')) AND NOT ((OLD."id" IS NOT NEW."id" COLLATE BINARY) OR OLD."tube" IS NOT NEW."tube" COLLATE BINARY) BEGIN
    INSERT INTO "mail_xq_count" ("tube", "source", "target", "n")
    SELECT CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END || '-' || CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END || ' write', 'S', 'S', 1
    WHERE (OLD."status" = 'T' OR ((OLD."status" = 'T' OR OLD."status" = 'Z') AND (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z'))) AND OLD."status" IS NOT NEW."status" COLLATE BINARY AND (OLD."status" = 'T' AND NEW."owner" = '-' || OLD."owner") IS NOT TRUE AND printf('write') = 'write'
    ON CONFLICT DO UPDATE
    SET n = n + 1;
UPDATE "mail_xq_wait"
    SET "event" = printf('write'), "target" = CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END
    WHERE k0 = OLD."id" AND event IS NULL AND ((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W')) IS NOT TRUE AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W');
    INSERT INTO "mail_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner", "actor", "reason")
    VALUES (CASE typeof(NEW."id") WHEN 'blob' THEN hex(NEW."id") ELSE NEW."id" END, NEW."tube", NEW."attempts", MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, printf('write'), CASE WHEN OLD."status" = 'T' THEN OLD."owner" WHEN NEW."status" = 'T' THEN NEW."owner" END, NULLIF(printf('xq_actor'), 'xq_actor'), NULLIF(printf('xq_reason'), 'xq_reason'));
END;

-- install: the trigger mail_xq_update_task
DROP TRIGGER IF EXISTS "main"."mail_xq_update_task";

-- install: the trigger mail_xq_update_task
CREATE TRIGGER "mail_xq_update_task" AFTER UPDATE OF "id", "tube" ON "mail" WHEN ((OLD."id" IS NOT NEW."id" COLLATE BINARY) OR OLD."tube" IS NOT NEW."tube" COLLATE BINARY) AND ((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z') OR (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z')) BEGIN UPDATE "mail_xq_count"
    SET n = (SELECT COALESCE(MAX(id), 0) FROM "mail_xq_history")
    WHERE tube = '' AND source = '' AND target = '';
DELETE FROM "mail_xq_count"
    WHERE tube = '' AND source = '' AND target = '';
    INSERT INTO "mail_xq_count" ("tube", "source", "target", "n")
    SELECT CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END || '-' || CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END || ' write', 'S', 'S', 1
    WHERE (OLD."status" = 'T' OR ((OLD."status" = 'T' OR OLD."status" = 'Z') AND (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z'))) AND OLD."status" IS NOT NEW."status" COLLATE BINARY AND (OLD."status" = 'T' AND NEW."owner" = '-' || OLD."owner") IS NOT TRUE AND printf('write') = 'write'
    ON CONFLICT DO UPDATE
    SET n = n + 1;
    INSERT INTO "mail_xq_count" ("tube", "source", "target", "n")
    SELECT '', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, 1
    WHERE CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END
    ON CONFLICT DO UPDATE
    SET n = n + 1;
    INSERT INTO "mail_xq_count" ("tube", "source", "target", "n")
    SELECT NEW."tube", CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, 1
    WHERE NOT OLD."tube" IS NOT NEW."tube" COLLATE BINARY AND NEW."tube" IN ('it''s', 'news') AND CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END
    ON CONFLICT DO UPDATE
    SET n = n + 1;
    INSERT INTO "mail_xq_count" ("tube", "source", "target", "n")
    SELECT OLD."tube", CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, CASE WHEN COALESCE((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z'), FALSE) THEN 'S' ELSE 'X' END, 1
    WHERE OLD."tube" IS NOT NEW."tube" COLLATE BINARY AND OLD."tube" IN ('it''s', 'news') AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z'), FALSE)
    ON CONFLICT DO UPDATE
    SET n = n + 1;
    INSERT INTO "mail_xq_count" ("tube", "source", "target", "n")
    SELECT NEW."tube", CASE WHEN COALESCE((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z'), FALSE) THEN 'S' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, 1
    WHERE OLD."tube" IS NOT NEW."tube" COLLATE BINARY AND NEW."tube" IN ('it''s', 'news') AND COALESCE((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z'), FALSE)
    ON CONFLICT DO UPDATE
    SET n = n + 1;
UPDATE "mail_xq_wait"
    SET "event" = printf('write'), "target" = CASE WHEN (OLD."id" IS NOT NEW."id" COLLATE BINARY) THEN 'X' ELSE CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END END
    WHERE k0 = OLD."id" AND event IS NULL AND (((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W')) IS NOT TRUE OR (OLD."id" IS NOT NEW."id" COLLATE BINARY)) AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W');
    INSERT INTO "mail_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner", "actor", "reason")
    SELECT CASE typeof(OLD."id") WHEN 'blob' THEN hex(OLD."id") ELSE OLD."id" END, OLD."tube", OLD."attempts", MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, 'X', printf('write'), CASE WHEN OLD."status" = 'T' THEN OLD."owner" END, NULLIF(printf('xq_actor'), 'xq_actor'), NULLIF(printf('xq_reason'), 'xq_reason')
    WHERE (OLD."id" IS NOT NEW."id" COLLATE BINARY) AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z'), FALSE);
    INSERT INTO "mail_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner", "actor", "reason")
    SELECT CASE typeof(NEW."id") WHEN 'blob' THEN hex(NEW."id") ELSE NEW."id" END, NEW."tube", NEW."attempts", MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), 'X', CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, printf('write'), CASE WHEN NEW."status" = 'T' THEN NEW."owner" END, NULLIF(printf('xq_actor'), 'xq_actor'), NULLIF(printf('xq_reason'), 'xq_reason')
    WHERE (OLD."id" IS NOT NEW."id" COLLATE BINARY) AND COALESCE((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z'), FALSE);
    INSERT INTO "mail_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner", "actor", "reason")
    SELECT CASE typeof(NEW."id") WHEN 'blob' THEN hex(NEW."id") ELSE NEW."id" END, NEW."tube", NEW."attempts", MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, printf('write'), CASE WHEN OLD."status" = 'T' THEN OLD."owner" WHEN NEW."status" = 'T' THEN NEW."owner" END, NULLIF(printf('xq_actor'), 'xq_actor'), NULLIF(printf('xq_reason'), 'xq_reason')
    WHERE NOT (OLD."id" IS NOT NEW."id" COLLATE BINARY) AND (COALESCE((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z'), FALSE) OR COALESCE((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z'), FALSE)) AND (OLD."status" IS NOT NEW."status" COLLATE BINARY OR printf('write') <> 'write');
    INSERT INTO "mail_xq_count"
    VALUES ('', '', '', (SELECT COALESCE(MAX(id), 0) FROM "mail_xq_history"));
END;

-- install: the trigger mail_xq_delete
DROP TRIGGER IF EXISTS "main"."mail_xq_delete";

-- install: the trigger mail_xq_delete
CREATE TRIGGER "mail_xq_delete" AFTER DELETE ON "mail" WHEN (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z') BEGIN UPDATE "mail_xq_wait"
    SET "event" = printf('write'), "target" = 'X'
    WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W');
    INSERT INTO "mail_xq_history" ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner", "actor", "reason")
    VALUES (CASE typeof(OLD."id") WHEN 'blob' THEN hex(OLD."id") ELSE OLD."id" END, OLD."tube", OLD."attempts", MAX(COALESCE(NULLIF(printf('xq_at'), 'xq_at'), 0), CAST(ROUND((julianday('now') - 2440587.5) * 86400.0 * 1000000.0) AS INTEGER)), CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, 'X', printf('write'), CASE WHEN OLD."status" = 'T' THEN OLD."owner" END, NULLIF(printf('xq_actor'), 'xq_actor'), NULLIF(printf('xq_reason'), 'xq_reason'));
END;

-- install: the trigger mail_xq_add_up
DROP TRIGGER IF EXISTS "main"."mail_xq_add_up";

-- install: the trigger mail_xq_add_up
CREATE TRIGGER "mail_xq_add_up" AFTER UPDATE OF n ON "mail_xq_count" WHEN NEW.target = '' BEGIN
    INSERT INTO "mail_xq_count"
    SELECT '', source, target, COUNT(*) FROM "mail_xq_history"
    WHERE id > OLD.n AND id <= NEW.n AND source <> target
    GROUP BY 2, 3
    ON CONFLICT DO UPDATE
    SET n = n + excluded.n;
    INSERT INTO "mail_xq_count"
    SELECT tube, source, target, COUNT(*) FROM "mail_xq_history"
    WHERE id > OLD.n AND id <= NEW.n AND source <> target AND tube IN ('it''s', 'news')
    GROUP BY 1, 2, 3
    ON CONFLICT DO UPDATE
    SET n = n + excluded.n;
END;

-- install: the trigger mail_xq_noted
DROP TRIGGER IF EXISTS "main"."mail_xq_noted";

-- install: the trigger mail_xq_noted
CREATE TRIGGER "mail_xq_noted" AFTER INSERT ON "mail_xq_history" WHEN NEW.id % 1000 = 0 BEGIN UPDATE "mail_xq_count"
    SET n = NEW.id
    WHERE tube = '' AND source = '' AND target = '';
END;

-- install: the trigger mail_xq_pruned
DROP TRIGGER IF EXISTS "main"."mail_xq_pruned";

-- install: the trigger mail_xq_pruned
CREATE TRIGGER "mail_xq_pruned" BEFORE DELETE ON "mail_xq_history" WHEN OLD.id >= (SELECT n FROM "mail_xq_count"
    WHERE tube = '' AND source = '' AND target = '') BEGIN UPDATE "mail_xq_count"
    SET n = (SELECT COALESCE(MAX(id), 0) FROM "mail_xq_history")
    WHERE tube = '' AND source = '' AND target = '';
UPDATE "mail_xq_count"
    SET n = COALESCE((SELECT MAX(id) FROM "mail_xq_history"
    WHERE id < OLD.id), 0)
    WHERE tube = '' AND source = '' AND target = '' AND n = OLD.id;
END;

-- install: the trigger mail_xq_left
DROP TRIGGER IF EXISTS "main"."mail_xq_left";

-- install: the trigger mail_xq_left
CREATE TRIGGER "mail_xq_left" AFTER UPDATE OF "status" ON "mail" WHEN NOT COALESCE((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'Z'), FALSE) AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'Z'), FALSE) AND (NEW."runat" IS NOT NULL COLLATE BINARY) AND (NEW."owner" IN ('-', '--') AND OLD."owner" IS NOT NEW."owner" COLLATE BINARY) IS NOT TRUE BEGIN UPDATE "mail"
    SET "runat" = NULL
    WHERE "id" = NEW."id";
END;

-- install: record
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    SELECT name, 'definition', (SELECT COALESCE(MAX(generation), 0) + 1 FROM xq_generation
    WHERE queue = 'mail' AND kind = 'definition'), version, fingerprint, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_queue
    WHERE name = 'mail' AND (version, fingerprint) NOT IN (SELECT version, definition FROM xq_generation
    WHERE queue = 'mail' AND kind = 'definition');

-- install: record
UPDATE xq_generation
    SET at_us = CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER)
    WHERE queue = 'mail' AND kind = 'definition' AND (version, definition) = (SELECT version, fingerprint FROM xq_queue
    WHERE name = 'mail');

-- install: record
DELETE FROM xq_queue
    WHERE name = 'mail';

-- install: record
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('mail', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "ttl", "ttr", "status", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, 'R', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 10.0, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- X put R: 2
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "ttl", "ttr", "status", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, 'R', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 10.0, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, :f8_1, :f9_1, 'R', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 10.0, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- X put R with ttl, ttr: 1
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "status", "ttl", "ttr", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, 'R', :own_ttl, :own_ttr, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- X put R with ttl, ttr: 2
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "status", "ttl", "ttr", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, 'R', :own_ttl, :own_ttr, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, 'R', :own_ttl, :own_ttr, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- X put W with delay: 1
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "ttl", "ttr", "status", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, 'W', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- X put W with delay: 2
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "ttl", "ttr", "status", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, 'W', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, :f8_1, :f9_1, 'W', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- X put W with delay, ttl, ttr: 1
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "status", "ttl", "ttr", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, 'W', :own_ttl, :own_ttr, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- X put W with delay, ttl, ttr: 2
INSERT INTO "mail" ("id", "address", "priority", "tube", "attempts", "status", "ttl", "ttr", "runat", "owner")
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, 'W', :own_ttl, :own_ttr, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, 'W', :own_ttl, :own_ttr, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T: first
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttr", 60.0), 9e999), "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T: oldest
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttr", 60.0), 9e999), "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T: first of a tube
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttr", 60.0), 9e999), "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R_of_tube"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND "tube" = :tube AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T: oldest of a tube
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttr", 60.0), 9e999), "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R_of_tube"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND "tube" = :tube AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T: first, while 2 tubes are paused
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttr", 60.0), 9e999), "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND ("tube" IS NULL OR "tube" NOT IN (:skip0, :skip1)) AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T with ttr: first
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T with ttr: oldest
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T with ttr: first of a tube
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R_of_tube"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND "tube" = :tube AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T with ttr: oldest of a tube
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R_of_tube"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND "tube" = :tube AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R take T with ttr: first, while 2 tubes are paused
UPDATE "mail"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, "owner" = :owner, "attempts" = COALESCE("attempts", 0) + 1
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND ("tube" IS NULL OR "tube" NOT IN (:skip0, :skip1)) AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0))
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z: key, of this session
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z: keys, of this session
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z: key, of this very take
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z: keys, of this very take
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z: keys, each of its take
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" IN (SELECT json_extract(value, '$[0]') FROM json_each(:keys)) AND +"status" = 'T' AND ("id", +"owner") IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys))
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z with delay: key, of this session
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z with delay: key, of this very take
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ack Z with update={'address': ...}
UPDATE "mail"
    SET "address" = :f1, "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R: key, of this session
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R: keys, of this session
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R: key, of this very take
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R: keys, of this very take
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R: keys, each of its take
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" IN (SELECT json_extract(value, '$[0]') FROM json_each(:keys)) AND +"status" = 'T' AND ("id", +"owner") IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys))
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R: owned
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "mail"
    WHERE "id" IS NOT NULL AND "status" = 'T' AND "owner" >= :first0 AND "owner" < :end0 LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R: all
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "status" = 'T';

-- T release R: each
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "status" = 'T'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R with ttl, ttr: key, of this session
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release R with ttl, ttr: key, of this very take
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T snatch R: key
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T snatch R with ttl, ttr: key
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T touch T with increment: key, of this session
UPDATE "mail"
    SET "runat" = COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T touch T with increment: key, of this very take
UPDATE "mail"
    SET "runat" = COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W Z restart R: key
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W Z restart R with ttl, ttr: key
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R switch R: key
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R switch R with ttl, ttr: key
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R B Z switch W with delay: key
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R B Z switch W with delay, ttl, ttr: key
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R W Z switch B: key
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R W B switch Z: key
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R W B switch Z with delay: key
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W B Z switch R: key
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W B Z switch R with ttl, ttr: key
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W switch W with delay: key
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W switch W with delay, ttl, ttr: key
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B switch B: key
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- Z switch Z: key
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 3600.0, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'Z'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- Z switch Z with delay: key
UPDATE "mail"
    SET "status" = 'Z', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'Z'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R T W B Z kill X: key
DELETE FROM "mail"
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R T W B Z kill X: keys
DELETE FROM "mail"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R T W cancel X: key
DELETE FROM "mail"
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T bury B: key, of this session
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T bury B: keys, of this session
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T bury B: key, of this very take
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T bury B: keys, of this very take
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T bury B: keys, each of its take
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" IN (SELECT json_extract(value, '$[0]') FROM json_each(:keys)) AND +"status" = 'T' AND ("id", +"owner") IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys))
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig R: first
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig R: oldest
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig R: key
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig R with ttl, ttr: first
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig R with ttl, ttr: oldest
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig R with ttl, ttr: key
UPDATE "mail"
    SET "status" = 'R', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttl, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R T W cancel B: key
UPDATE "mail"
    SET "status" = 'B', "runat" = NULL, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W delay R: due by runat
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "id" IS NOT NULL AND "status" = 'W' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)
    ORDER BY "runat" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- Z zombie X: due by runat
DELETE FROM "mail"
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "id" IS NOT NULL AND "status" = 'Z' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)
    ORDER BY "runat" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R touch R with increment: key
UPDATE "mail"
    SET "runat" = COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- R ttl X: due by runat
DELETE FROM "mail"
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "id" IS NOT NULL AND "status" = 'R' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)
    ORDER BY "runat" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T ttr R: due by runat
UPDATE "mail"
    SET "status" = 'R', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULLIF(COALESCE("ttl", 10.0), 9e999), "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "id" IS NOT NULL AND "status" = 'T' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AND "runat" <= :asked AND substr(COALESCE("owner", ''), 1, 36) IN (SELECT value FROM json_each(:expired))
    ORDER BY "runat" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release W with delay: key, of this session
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release W with delay: key, of this very take
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release W with delay, ttl, ttr: key, of this session
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T release W with delay, ttl, ttr: key, of this very take
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T snatch W with delay: key
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- T snatch W with delay, ttl, ttr: key
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W restart W with delay: key
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- W restart W with delay, ttl, ttr: key
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- Z restart W with delay: key
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'Z'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- Z restart W with delay, ttl, ttr: key
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'Z'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig W with delay: first
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig W with delay: oldest
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig W with delay: key
UPDATE "mail"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig W with delay, ttl, ttr: first
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig W with delay, ttl, ttr: oldest
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "mail" INDEXED BY "mail_xq_oldest_B"
    WHERE "id" IS NOT NULL AND "status" = 'B'
    ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- B dig W with delay, ttl, ttr: key
UPDATE "mail"
    SET "status" = 'W', "ttl" = :own_ttl, "ttr" = :own_ttr, "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- kill in RTWBZ: all
DELETE FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z');

-- kill in RTWBZ: each
DELETE FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z')
    RETURNING "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr";

-- count what is there
INSERT INTO "mail_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END AS state, COUNT(*) AS n FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z')
    GROUP BY 1, 2
    UNION ALL
    SELECT "tube", CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, COUNT(*) FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z') AND "tube" IN ('it''s', 'news')
    GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "mail_xq_count"
    WHERE NOT (tube = '' AND source = '' AND target = '')
    UNION ALL
    SELECT 1 FROM "mail_xq_history");

-- installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'mail';

-- statuses in use
SELECT "status", COUNT(*) FROM "mail"
    GROUP BY 1;

-- queues
SELECT name FROM xq_queue;

-- sessions
SELECT uuid, since, host, pid, program FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session listed
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    VALUES (:uuid, '', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program), (:uuid, :queue, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program)
    ON CONFLICT (uuid, queue) DO NOTHING;

-- session is there
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- sessions listed
SELECT uuid, queue, ends - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), host, pid, program FROM xq_session;

-- rejoin session
UPDATE xq_session
    SET ends = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, host = :host, pid = :pid, program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- expire session later
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + (SELECT value FROM xq_setting
    WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid IN (:uuids) AND (SELECT value FROM xq_setting
    WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session ends
SELECT uuid FROM xq_session
    WHERE uuid IN (:uuids) AND ends IS NOT NULL;

-- session over
SELECT uuid FROM xq_session
    WHERE uuid IN (:uuids) AND ends <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0);

-- deregister session
DELETE FROM xq_session
    WHERE uuid IN (:uuids) AND queue = :queue;

-- set setting
INSERT INTO xq_setting (name, value)
    VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE
    SET value = :value;

-- time us
SELECT CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- forget cancelled
DELETE FROM xq_setting
    WHERE substr(name, 1, 10) = 'cancelled:' AND value < COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0);

-- pause
INSERT INTO xq_pause (queue, tube, whole, since_us, actor, reason)
    VALUES ('mail', :tube, :whole, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER), :actor, :reason)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'mail' AND tube = :tube AND whole = :whole;

-- pauses
SELECT tube, whole, since_us, actor, reason FROM xq_pause
    WHERE queue = 'mail';

-- add schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('mail', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- schedule
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'mail' AND name = :name;

-- set schedule
UPDATE xq_schedule
    SET spec = :spec, task = :task, next_us = :next_us
    WHERE queue = 'mail' AND name = :name;

-- drop schedule
DELETE FROM xq_schedule
    WHERE queue = 'mail' AND name = :name;

-- schedules
SELECT name, spec, task, next_us, last_us, paused, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER), paused_us, actor, reason FROM xq_schedule
    WHERE queue = 'mail' AND next_us IS NOT NULL
    ORDER BY name;

-- next firings
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL;

-- due schedule
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE queue = 'mail' AND name = :name AND paused IS NULL AND next_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- begin wait
INSERT INTO "mail_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- ends
SELECT waiter, event, target FROM "mail_xq_wait"
    WHERE event IS NOT NULL;

-- end wait
DELETE FROM "mail_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- forget waits
DELETE FROM "mail_xq_wait"
    WHERE session IN (:uuids);

-- waiting
SELECT k0, session, since FROM "mail_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- any ready
SELECT 1 FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "status" = 'R' AND ("runat" IS NULL OR "runat" > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) LIMIT 1;

-- next due
SELECT 'T runat' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'T' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'W runat' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'W' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'Z runat' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'Z' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'R runat' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'R' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'history' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT at_us / 1000000.0 + 660.0 AS at FROM "mail_xq_history"
    WHERE id < (SELECT MAX(id) FROM "mail_xq_history")
    ORDER BY id LIMIT 1) AS times
    UNION ALL
    SELECT 'untimed' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT 0 AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'T' AND ("owner" IS NULL OR substr("owner", 1, 1) = '-') AND "runat" IS NULL LIMIT 1) AS times;

-- begin writing
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- taken
SELECT "id", "owner" FROM "mail"
    WHERE "status" = 'T';

-- counters
SELECT tube, source, target, SUM(n) AS n, 1 FROM (SELECT tube, source, target, n FROM "mail_xq_count"
    WHERE NOT (tube = '' AND source = '' AND target = '')
    UNION ALL
    SELECT '', source, target, 1 FROM "mail_xq_history"
    WHERE id > (SELECT n FROM "mail_xq_count"
    WHERE tube = '' AND source = '' AND target = '') AND source <> target
    UNION ALL
    SELECT tube, source, target, 1 FROM "mail_xq_history"
    WHERE id > (SELECT n FROM "mail_xq_count"
    WHERE tube = '' AND source = '' AND target = '') AND source <> target AND tube IN ('it''s', 'news'))
    GROUP BY 1, 2, 3;

-- actual counts
SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END AS state, COUNT(*) AS n FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z')
    GROUP BY 1, 2
    UNION ALL
    SELECT "tube", CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, COUNT(*) FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z') AND "tube" IN ('it''s', 'news')
    GROUP BY 1, 2;

-- audit
SELECT tube, source, target, SUM(n) AS n, 1 FROM (SELECT tube, source, target, n FROM "mail_xq_count"
    WHERE NOT (tube = '' AND source = '' AND target = '')
    UNION ALL
    SELECT '', source, target, 1 FROM "mail_xq_history"
    WHERE id > (SELECT n FROM "mail_xq_count"
    WHERE tube = '' AND source = '' AND target = '') AND source <> target
    UNION ALL
    SELECT tube, source, target, 1 FROM "mail_xq_history"
    WHERE id > (SELECT n FROM "mail_xq_count"
    WHERE tube = '' AND source = '' AND target = '') AND source <> target AND tube IN ('it''s', 'news'))
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END AS state, COUNT(*) AS n FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z')
    GROUP BY 1, 2
    UNION ALL
    SELECT "tube", CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, COUNT(*) FROM "mail"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'Z') AND "tube" IN ('it''s', 'news')
    GROUP BY 1, 2) AS actual;

-- add counter
INSERT INTO "mail_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count)
    ON CONFLICT (tube, source, target) DO UPDATE
    SET n = n + :count;

-- expired history
SELECT id FROM (SELECT id, at_us FROM "mail_xq_history"
    WHERE id < (SELECT MAX(id) FROM "mail_xq_history")
    ORDER BY id LIMIT :n) AS oldest
    WHERE at_us < CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) - 600.0 * 1000000;

-- look
SELECT "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr", "owner" FROM "mail"
    WHERE "id" = :k0;

-- look at all
SELECT "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr", "owner" FROM "mail"
    WHERE "id" IN (SELECT value FROM json_each(:keys));

-- maintenance, for this queue and others: what other processes may have changed
SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n FROM xq_queue
    WHERE name IN ('mail')
    UNION ALL
    SELECT 'pause', queue, tube, '', whole FROM xq_pause
    UNION ALL
    SELECT 'schedule', queue, name, '', next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL
    UNION ALL
    SELECT 'cancelled', '', name, '', 0 FROM xq_setting
    WHERE substr(name, 1, 10) = 'cancelled:';

-- maintenance, for this queue and others: when is a task due, and is one ready
SELECT 0 AS place, 'T runat' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'T' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'W runat' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'W' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'Z runat' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'Z' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'R runat' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'R' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'history' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT at_us / 1000000.0 + 660.0 AS at FROM "mail_xq_history"
    WHERE id < (SELECT MAX(id) FROM "mail_xq_history")
    ORDER BY id LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'untimed' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT 0 AS at FROM "mail" INDEXED BY "mail_xq_runat"
    WHERE "status" = 'T' AND ("owner" IS NULL OR substr("owner", 1, 1) = '-') AND "runat" IS NULL LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'ready' AS duty, 0.0 AS seconds FROM (SELECT 1 FROM "mail" INDEXED BY "mail_xq_oldest_R"
    WHERE "status" = 'R' AND ("runat" IS NULL OR "runat" > COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0)) LIMIT 1) AS ready;

-- maintenance, for this queue and others: who owns tasks and is not registered
SELECT DISTINCT place, uuid FROM (SELECT 0 AS place, substr("owner", 1, 36) AS uuid FROM "mail"
    WHERE "status" = 'T'
    UNION ALL
    SELECT 0 AS place, session AS uuid FROM "mail_xq_wait") AS found
    WHERE uuid NOT IN (SELECT uuid FROM xq_session);

-- forget the queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'mail';

-- forget the queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'mail';

-- forget the queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'mail';

-- forget the queue in xq_generation
DELETE FROM xq_generation
    WHERE queue = 'mail';

-- forget the queue in xq_object
DELETE FROM xq_object
    WHERE queue = 'mail';

-- forget the queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'mail';

-- lock before a kill in several states
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- history
SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", dur_us FROM (SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", CASE WHEN source <> 'X' THEN MAX(0, at_us - LAG(at_us) OVER (PARTITION BY "key"
    ORDER BY id)) END AS dur_us FROM "mail_xq_history") AS noted
    WHERE at_us >= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) - 600.0 * 1000000
    ORDER BY id;

-- history of a task, from one moment to another
SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", dur_us FROM (SELECT "id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason", CASE WHEN source <> 'X' THEN MAX(0, at_us - LAG(at_us) OVER (PARTITION BY "key"
    ORDER BY id)) END AS dur_us FROM "mail_xq_history"
    WHERE "key" = CASE typeof(:k0) WHEN 'blob' THEN hex(:k0) ELSE :k0 END) AS noted
    WHERE at_us >= :since AND at_us < :until AND at_us >= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) - 600.0 * 1000000
    ORDER BY id;

-- R T W B Z by_state
SELECT "id", "address", "status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr" FROM "mail"
    WHERE "status" = 'R'
    ORDER BY "priority", "id" LIMIT :n;
