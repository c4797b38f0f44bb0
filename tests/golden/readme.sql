-- The queue of docs/start/peewee.md: delayed, buried, keep, ttr. The column xq_owner has the tokens.
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

-- install: the table page_xq_count
CREATE TABLE IF NOT EXISTS "page_xq_count" (tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID;

-- install: the table page_xq_count
DELETE FROM "page_xq_count"
    WHERE tube = '' AND source = '' AND target = '';

-- install: the table page_xq_wait
CREATE TABLE IF NOT EXISTS "page_xq_wait" (k0 INTEGER, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, target TEXT, PRIMARY KEY (k0, waiter)) WITHOUT ROWID;

-- install: the index page_xq_oldest_R
CREATE INDEX IF NOT EXISTS "page_xq_oldest_R" ON "page" ("id")
    WHERE "status" = 'R';

-- install: the index page_xq_oldest_B
CREATE INDEX IF NOT EXISTS "page_xq_oldest_B" ON "page" ("id")
    WHERE "status" = 'B';

-- install: the index page_xq_runat
CREATE INDEX IF NOT EXISTS "page_xq_runat" ON "page" ("status", "runat")
    WHERE "status" = 'T' OR "runat" IS NOT NULL;

-- install: the trigger page_xq_insert
DROP TRIGGER IF EXISTS "main"."page_xq_insert";

-- install: the trigger page_xq_insert
CREATE TRIGGER "page_xq_insert" AFTER INSERT ON "page" WHEN (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'D') BEGIN
    INSERT INTO "page_xq_count" ("tube", "source", "target", "n")
    SELECT '', 'X', CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END, 1
    WHERE 'X' <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END
    ON CONFLICT DO UPDATE
    SET n = n + 1;
END;

-- install: the trigger page_xq_update
DROP TRIGGER IF EXISTS "main"."page_xq_update";

-- install: the trigger page_xq_update
CREATE TRIGGER "page_xq_update" AFTER UPDATE OF "status" ON "page" WHEN OLD."status" IS NOT NEW."status" COLLATE BINARY AND ((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'D') OR (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'D')) AND NOT (OLD."id" IS NOT NEW."id" COLLATE BINARY) BEGIN
    INSERT INTO "page_xq_count" ("tube", "source", "target", "n")
    SELECT CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END || '-' || CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END || ' write', 'S', 'S', 1
    WHERE (OLD."status" = 'T' OR ((OLD."status" = 'T' OR OLD."status" = 'D') AND (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'D'))) AND OLD."status" IS NOT NEW."status" COLLATE BINARY AND (OLD."status" = 'T' AND NEW."xq_owner" = '-' || OLD."xq_owner") IS NOT TRUE AND printf('write') = 'write'
    ON CONFLICT DO UPDATE
    SET n = n + 1;
    INSERT INTO "page_xq_count" ("tube", "source", "target", "n")
    SELECT '', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END, 1
    WHERE CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END
    ON CONFLICT DO UPDATE
    SET n = n + 1;
UPDATE "page_xq_wait"
    SET "event" = printf('write'), "target" = CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END
    WHERE k0 = OLD."id" AND event IS NULL AND ((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W')) IS NOT TRUE AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W');
END;

-- install: the trigger page_xq_update_task
DROP TRIGGER IF EXISTS "main"."page_xq_update_task";

-- install: the trigger page_xq_update_task
CREATE TRIGGER "page_xq_update_task" AFTER UPDATE OF "id" ON "page" WHEN (OLD."id" IS NOT NEW."id" COLLATE BINARY) AND ((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'D') OR (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'D')) BEGIN
    INSERT INTO "page_xq_count" ("tube", "source", "target", "n")
    SELECT CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END || '-' || CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END || ' write', 'S', 'S', 1
    WHERE (OLD."status" = 'T' OR ((OLD."status" = 'T' OR OLD."status" = 'D') AND (NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'D'))) AND OLD."status" IS NOT NEW."status" COLLATE BINARY AND (OLD."status" = 'T' AND NEW."xq_owner" = '-' || OLD."xq_owner") IS NOT TRUE AND printf('write') = 'write'
    ON CONFLICT DO UPDATE
    SET n = n + 1;
    INSERT INTO "page_xq_count" ("tube", "source", "target", "n")
    SELECT '', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END, 1
    WHERE CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END
    ON CONFLICT DO UPDATE
    SET n = n + 1;
UPDATE "page_xq_wait"
    SET "event" = printf('write'), "target" = CASE WHEN (OLD."id" IS NOT NEW."id" COLLATE BINARY) THEN 'X' ELSE CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END END
    WHERE k0 = OLD."id" AND event IS NULL AND (((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W')) IS NOT TRUE OR (OLD."id" IS NOT NEW."id" COLLATE BINARY)) AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W');
END;

-- install: the trigger page_xq_delete
DROP TRIGGER IF EXISTS "main"."page_xq_delete";

-- install: the trigger page_xq_delete
CREATE TRIGGER "page_xq_delete" AFTER DELETE ON "page" WHEN (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'D') BEGIN
    INSERT INTO "page_xq_count" ("tube", "source", "target", "n")
    SELECT '', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END, 'X', 1
    WHERE CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END <> 'X'
    ON CONFLICT DO UPDATE
    SET n = n + 1;
UPDATE "page_xq_wait"
    SET "event" = printf('write'), "target" = 'X'
    WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W');
END;

-- install: the trigger page_xq_left
DROP TRIGGER IF EXISTS "main"."page_xq_left";

-- install: the trigger page_xq_left
CREATE TRIGGER "page_xq_left" AFTER UPDATE OF "status" ON "page" WHEN NOT COALESCE((NEW."status" = 'R' OR NEW."status" = 'T' OR NEW."status" = 'W' OR NEW."status" = 'B' OR NEW."status" = 'D'), FALSE) AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T' OR OLD."status" = 'W' OR OLD."status" = 'B' OR OLD."status" = 'D'), FALSE) AND (NEW."runat" IS NOT NULL COLLATE BINARY) AND (NEW."xq_owner" IN ('-', '--') AND OLD."xq_owner" IS NOT NEW."xq_owner" COLLATE BINARY) IS NOT TRUE BEGIN UPDATE "page"
    SET "runat" = NULL
    WHERE "id" = NEW."id";
END;

-- install: record
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    SELECT name, 'definition', (SELECT COALESCE(MAX(generation), 0) + 1 FROM xq_generation
    WHERE queue = 'page' AND kind = 'definition'), version, fingerprint, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_queue
    WHERE name = 'page' AND (version, fingerprint) NOT IN (SELECT version, definition FROM xq_generation
    WHERE queue = 'page' AND kind = 'definition');

-- install: record
UPDATE xq_generation
    SET at_us = CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER)
    WHERE queue = 'page' AND kind = 'definition' AND (version, definition) = (SELECT version, fingerprint FROM xq_queue
    WHERE name = 'page');

-- install: record
DELETE FROM xq_queue
    WHERE name = 'page';

-- install: record
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('page', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'R', NULL, NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- X put R: 2
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'R', NULL, NULL), (:f1_1, :f2_1, 'R', NULL, NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- X put W with delay: 1
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'W', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- X put W with delay: 2
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'W', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL), (:f1_1, :f2_1, 'W', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T: first
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 60.0, "xq_owner" = :owner
    WHERE "id" = (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_R"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT 1)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T: oldest
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 60.0, "xq_owner" = :owner
    WHERE "id" IN (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_R"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT :n)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T with ttr: first
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, "xq_owner" = :owner
    WHERE "id" = (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_R"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT 1)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T with ttr: oldest
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr, "xq_owner" = :owner
    WHERE "id" IN (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_R"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT :n)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: key, of this session
UPDATE "page"
    SET "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: keys, of this session
UPDATE "page"
    SET "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: key, of this very take
UPDATE "page"
    SET "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: keys, of this very take
UPDATE "page"
    SET "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: keys, each of its take
UPDATE "page"
    SET "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT json_extract(value, '$[0]') FROM json_each(:keys)) AND +"status" = 'T' AND ("id", +"xq_owner") IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys))
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D with update={'url': ...}
UPDATE "page"
    SET "url" = :f1, "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: key, of this session
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: keys, of this session
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: key, of this very take
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: keys, of this very take
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: keys, each of its take
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT json_extract(value, '$[0]') FROM json_each(:keys)) AND +"status" = 'T' AND ("id", +"xq_owner") IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys))
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: owned
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "page"
    WHERE "status" = 'T' AND "xq_owner" >= :first0 AND "xq_owner" < :end0 LIMIT :n)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: all
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "status" = 'T';

-- T release R: each
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T snatch R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T touch T with increment: key, of this session
UPDATE "page"
    SET "runat" = COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment
    WHERE "id" = :k0 AND "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T touch T with increment: key, of this very take
UPDATE "page"
    SET "runat" = COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment
    WHERE "id" = :k0 AND "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W D restart R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R switch R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R B D switch W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R W D switch B: key
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R W B switch D: key
UPDATE "page"
    SET "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W B D switch R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W switch W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B switch B: key
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- D switch D: key
UPDATE "page"
    SET "status" = 'D', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'D'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W B D kill X: key
DELETE FROM "page"
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W B D kill X: keys
DELETE FROM "page"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W cancel X: key
DELETE FROM "page"
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: key, of this session
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: keys, of this session
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: key, of this very take
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: keys, of this very take
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: keys, each of its take
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT json_extract(value, '$[0]') FROM json_each(:keys)) AND +"status" = 'T' AND ("id", +"xq_owner") IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys))
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig R: first
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_B"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT 1)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig R: oldest
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_B"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT :n)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W cancel B: key
UPDATE "page"
    SET "status" = 'B', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W delay R: due by runat
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'W' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)
    ORDER BY "runat" LIMIT :n)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ttr R: due by runat
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'T' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AND "runat" <= :asked AND substr(COALESCE("xq_owner", ''), 1, 36) IN (SELECT value FROM json_each(:expired))
    ORDER BY "runat" LIMIT :n)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release W with delay: key, of this session
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release W with delay: key, of this very take
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T snatch W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W restart W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- D restart W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'D'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig W with delay: first
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_B"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT 1)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig W with delay: oldest
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "page" INDEXED BY "page_xq_oldest_B"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT :n)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay, "xq_owner" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- kill in RTWBD: all
DELETE FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D');

-- kill in RTWBD: each
DELETE FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- count what is there
INSERT INTO "page_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "page_xq_count");

-- installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'page';

-- statuses in use
SELECT "status", COUNT(*) FROM "page"
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
    VALUES ('page', :tube, :whole, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER), :actor, :reason)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'page' AND tube = :tube AND whole = :whole;

-- pauses
SELECT tube, whole, since_us, actor, reason FROM xq_pause
    WHERE queue = 'page';

-- add schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('page', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- schedule
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'page' AND name = :name;

-- set schedule
UPDATE xq_schedule
    SET spec = :spec, task = :task, next_us = :next_us
    WHERE queue = 'page' AND name = :name;

-- drop schedule
DELETE FROM xq_schedule
    WHERE queue = 'page' AND name = :name;

-- schedules
SELECT name, spec, task, next_us, last_us, paused, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER), paused_us, actor, reason FROM xq_schedule
    WHERE queue = 'page' AND next_us IS NOT NULL
    ORDER BY name;

-- next firings
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL;

-- due schedule
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE queue = 'page' AND name = :name AND paused IS NULL AND next_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- begin wait
INSERT INTO "page_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- ends
SELECT waiter, event, target FROM "page_xq_wait"
    WHERE event IS NOT NULL;

-- end wait
DELETE FROM "page_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- forget waits
DELETE FROM "page_xq_wait"
    WHERE session IN (:uuids);

-- waiting
SELECT k0, session, since FROM "page_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- any ready
SELECT 1 FROM "page" INDEXED BY "page_xq_oldest_R"
    WHERE "status" = 'R' LIMIT 1;

-- next due
SELECT 'T runat' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'T' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'W runat' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'W' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'untimed' AS duty, at - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT 0 AS at FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'T' AND ("xq_owner" IS NULL OR substr("xq_owner", 1, 1) = '-') AND "runat" IS NULL LIMIT 1) AS times;

-- begin writing
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- taken
SELECT "id", "xq_owner" FROM "page"
    WHERE "status" = 'T';

-- counters
SELECT tube, source, target, n, 1 FROM "page_xq_count";

-- actual counts
SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    GROUP BY 1, 2;

-- audit
SELECT tube, source, target, n, 1 FROM "page_xq_count"
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    GROUP BY 1, 2) AS actual;

-- add counter
INSERT INTO "page_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count)
    ON CONFLICT (tube, source, target) DO UPDATE
    SET n = n + :count;

-- look
SELECT "id", "url", "title", "status", "runat", "xq_owner", "xq_owner" FROM "page"
    WHERE "id" = :k0;

-- look at all
SELECT "id", "url", "title", "status", "runat", "xq_owner", "xq_owner" FROM "page"
    WHERE "id" IN (SELECT value FROM json_each(:keys));

-- maintenance, for this queue and others: what other processes may have changed
SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n FROM xq_queue
    WHERE name IN ('page')
    UNION ALL
    SELECT 'pause', queue, tube, '', whole FROM xq_pause
    UNION ALL
    SELECT 'schedule', queue, name, '', next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL
    UNION ALL
    SELECT 'cancelled', '', name, '', 0 FROM xq_setting
    WHERE substr(name, 1, 10) = 'cancelled:';

-- maintenance, for this queue and others: when is a task due, and is one ready
SELECT 0 AS place, 'T runat' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'T' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'W runat' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT "runat" AS at FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'W' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'untimed' AS duty, at - COALESCE(NULL, (julianday('now') - 2440587.5) * 86400.0) AS seconds FROM (SELECT 0 AS at FROM "page" INDEXED BY "page_xq_runat"
    WHERE "status" = 'T' AND ("xq_owner" IS NULL OR substr("xq_owner", 1, 1) = '-') AND "runat" IS NULL LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'ready' AS duty, 0.0 AS seconds FROM (SELECT 1 FROM "page" INDEXED BY "page_xq_oldest_R"
    WHERE "status" = 'R' LIMIT 1) AS ready;

-- maintenance, for this queue and others: who owns tasks and is not registered
SELECT DISTINCT place, uuid FROM (SELECT 0 AS place, substr("xq_owner", 1, 36) AS uuid FROM "page"
    WHERE "status" = 'T'
    UNION ALL
    SELECT 0 AS place, session AS uuid FROM "page_xq_wait") AS found
    WHERE uuid NOT IN (SELECT uuid FROM xq_session);

-- forget the queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'page';

-- forget the queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'page';

-- forget the queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'page';

-- forget the queue in xq_generation
DELETE FROM xq_generation
    WHERE queue = 'page';

-- forget the queue in xq_object
DELETE FROM xq_object
    WHERE queue = 'page';

-- forget the queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'page';

-- lock before a kill in several states
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- R T W B D by_state
SELECT "id", "url", "title", "status", "runat", "xq_owner" FROM "page"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT :n;
