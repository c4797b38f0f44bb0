-- Words as statuses and as key in a table with odd names: unique, limit, not_check_session, buried by anyone.
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

-- install: the table order_xq_count
CREATE TABLE IF NOT EXISTS "order_xq_count" (tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID;

-- install: the table order_xq_count
DELETE FROM "order_xq_count"
    WHERE tube = '' AND source = '' AND target = '';

-- install: the table order_xq_wait
CREATE TABLE IF NOT EXISTS "order_xq_wait" (k0 TEXT, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, target TEXT, PRIMARY KEY (k0, waiter)) WITHOUT ROWID;

-- install: the table order_xq_owner
CREATE TABLE IF NOT EXISTS "order_xq_owner" ("id" TEXT, owner TEXT NOT NULL, PRIMARY KEY ("id")) WITHOUT ROWID;

-- install: the index order_xq_oldest_R
CREATE INDEX IF NOT EXISTS "order_xq_oldest_R"
    ON "order" ("id")
    WHERE "select" = 'new';

-- install: the index order_xq_oldest_B
CREATE INDEX IF NOT EXISTS "order_xq_oldest_B"
    ON "order" ("id")
    WHERE "select" = 'won''t do';

-- install: the index order_xq_runat
CREATE INDEX IF NOT EXISTS "order_xq_runat"
    ON "order" ("select", "runat")
    WHERE "select" = 'in hand' OR "runat" IS NOT NULL;

-- install: the index order_xq_unique
CREATE UNIQUE INDEX IF NOT EXISTS "order_xq_unique"
    ON "order" ("number")
    WHERE "select" IN ('new', 'in hand', 'W');

-- install: the trigger order_xq_insert
DROP TRIGGER IF EXISTS "main"."order_xq_insert";

-- install: the trigger order_xq_insert
CREATE TRIGGER "order_xq_insert" AFTER INSERT
    ON "order" WHEN (NEW."select" = 'new' OR NEW."select" = 'in hand' OR NEW."select" = 'W' OR NEW."select" = 'won''t do' OR NEW."select" = 'done') BEGIN
    INSERT INTO "order_xq_count"
        VALUES ('', 'X', CASE NEW."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END, 1)
        ON CONFLICT DO UPDATE
        SET n = n + 1;
END;

-- install: the trigger order_xq_update
DROP TRIGGER IF EXISTS "main"."order_xq_update";

-- install: the trigger order_xq_update
CREATE TRIGGER "order_xq_update" AFTER UPDATE OF "select"
    ON "order" WHEN OLD."select" IS NOT NEW."select" COLLATE BINARY AND ((OLD."select" = 'new' OR OLD."select" = 'in hand' OR OLD."select" = 'W' OR OLD."select" = 'won''t do' OR OLD."select" = 'done') OR (NEW."select" = 'new' OR NEW."select" = 'in hand' OR NEW."select" = 'W' OR NEW."select" = 'won''t do' OR NEW."select" = 'done')) AND NOT (OLD."id" IS NOT NEW."id" COLLATE BINARY) BEGIN
    INSERT INTO "order_xq_count"
        SELECT '', CASE OLD."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END, CASE NEW."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END, 1
        WHERE CASE OLD."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END <> CASE NEW."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "order_xq_wait"
        SET event = printf('write'),
            target = CASE NEW."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."select" = 'new' OR OLD."select" = 'in hand' OR OLD."select" = 'W') AND ((NEW."select" = 'new' OR NEW."select" = 'in hand' OR NEW."select" = 'W')) IS NOT TRUE;
    DELETE FROM "order_xq_owner"
        WHERE "id" = OLD."id" AND OLD."select" = 'in hand' AND OLD."select" IS NOT NEW."select" COLLATE BINARY;
END;

-- install: the trigger order_xq_update_task
DROP TRIGGER IF EXISTS "main"."order_xq_update_task";

-- install: the trigger order_xq_update_task
CREATE TRIGGER "order_xq_update_task" AFTER UPDATE OF "id"
    ON "order" WHEN (OLD."id" IS NOT NEW."id" COLLATE BINARY) AND ((OLD."select" = 'new' OR OLD."select" = 'in hand' OR OLD."select" = 'W' OR OLD."select" = 'won''t do' OR OLD."select" = 'done') OR (NEW."select" = 'new' OR NEW."select" = 'in hand' OR NEW."select" = 'W' OR NEW."select" = 'won''t do' OR NEW."select" = 'done')) BEGIN
    INSERT INTO "order_xq_count"
        SELECT '', CASE OLD."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END, CASE NEW."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END, 1
        WHERE CASE OLD."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END <> CASE NEW."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "order_xq_wait"
        SET event = printf('write'),
            target = CASE WHEN OLD."id" IS NOT NEW."id" COLLATE BINARY THEN 'X' ELSE CASE NEW."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END END
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."select" = 'new' OR OLD."select" = 'in hand' OR OLD."select" = 'W') AND (((NEW."select" = 'new' OR NEW."select" = 'in hand' OR NEW."select" = 'W')) IS NOT TRUE OR OLD."id" IS NOT NEW."id" COLLATE BINARY);
    DELETE FROM "order_xq_owner"
        WHERE "id" = OLD."id" AND OLD."select" = 'in hand' AND (OLD."select" IS NOT NEW."select" COLLATE BINARY OR OLD."id" IS NOT NEW."id" COLLATE BINARY);
END;

-- install: the trigger order_xq_delete
DROP TRIGGER IF EXISTS "main"."order_xq_delete";

-- install: the trigger order_xq_delete
CREATE TRIGGER "order_xq_delete" AFTER DELETE
    ON "order" WHEN (OLD."select" = 'new' OR OLD."select" = 'in hand' OR OLD."select" = 'W' OR OLD."select" = 'won''t do' OR OLD."select" = 'done') BEGIN
    INSERT INTO "order_xq_count"
        VALUES ('', CASE OLD."select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END, 'X', 1)
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "order_xq_wait"
        SET event = printf('write'),
            target = 'X'
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."select" = 'new' OR OLD."select" = 'in hand' OR OLD."select" = 'W');
    DELETE FROM "order_xq_owner"
        WHERE "id" = OLD."id" AND OLD."select" = 'in hand';
END;

-- install: count what is there
INSERT INTO "order_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "order" WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done') GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "order_xq_count");

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'order';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('order', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    SELECT * FROM (VALUES (:f0_0, :f1_0, :f2_0, 'new', NULL))
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- X put R: 2
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    SELECT * FROM (VALUES (:f0_0, :f1_0, :f2_0, 'new', NULL), (:f0_1, :f1_1, :f2_1, 'new', NULL))
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- X put W with delay: 1
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    SELECT * FROM (VALUES (:f0_0, :f1_0, :f2_0, 'W', CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)))
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- X put W with delay: 2
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    SELECT * FROM (VALUES (:f0_0, :f1_0, :f2_0, 'W', CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)), (:f0_1, :f1_1, :f2_1, 'W', CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)))
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- put: the row that holds a value of unique
SELECT "id", "number", """x", "select", "runat" FROM "order"
    WHERE "number" = :unique AND "select" IN ('new', 'in hand', 'W');

-- R W put R, on_conflict='replace'
UPDATE "order"
    SET "id" = :f0,
        "number" = :f1,
        """x" = :f2,
        "select" = 'new',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R W put W with delay, on_conflict='replace'
UPDATE "order"
    SET "id" = :f0,
        "number" = :f1,
        """x" = :f2,
        "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R take T: the oldest
UPDATE "order"
    SET "select" = 'in hand',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULL + 0.999 AS INTEGER)
    WHERE "id" = (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_R" WHERE "id" IS NOT NULL AND "select" = 'new' ORDER BY "id" LIMIT 1)
    RETURNING "id", "number", """x", "select", "runat";
-- and for each row of these
INSERT OR REPLACE INTO "order_xq_owner" ("id", owner)
    VALUES (:k0, :owner);

-- R take T: the n oldest
UPDATE "order"
    SET "select" = 'in hand',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + NULL + 0.999 AS INTEGER)
    WHERE "id" IN (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_R" WHERE "id" IS NOT NULL AND "select" = 'new' ORDER BY "id" LIMIT :n)
    RETURNING "id", "number", """x", "select", "runat";
-- and for each row of these
INSERT OR REPLACE INTO "order_xq_owner" ("id", owner)
    VALUES (:k0, :owner);
-- or for all of them, by a list of their keys
INSERT OR REPLACE INTO "order_xq_owner" ("id", owner)
    SELECT value, :owner FROM json_each(:keys);

-- R take T with ttr: the oldest
UPDATE "order"
    SET "select" = 'in hand',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr + 0.999 AS INTEGER)
    WHERE "id" = (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_R" WHERE "id" IS NOT NULL AND "select" = 'new' ORDER BY "id" LIMIT 1)
    RETURNING "id", "number", """x", "select", "runat";
-- and for each row of these
INSERT OR REPLACE INTO "order_xq_owner" ("id", owner)
    VALUES (:k0, :owner);

-- R take T with ttr: the n oldest
UPDATE "order"
    SET "select" = 'in hand',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr + 0.999 AS INTEGER)
    WHERE "id" IN (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_R" WHERE "id" IS NOT NULL AND "select" = 'new' ORDER BY "id" LIMIT :n)
    RETURNING "id", "number", """x", "select", "runat";
-- and for each row of these
INSERT OR REPLACE INTO "order_xq_owner" ("id", owner)
    VALUES (:k0, :owner);
-- or for all of them, by a list of their keys
INSERT OR REPLACE INTO "order_xq_owner" ("id", owner)
    SELECT value, :owner FROM json_each(:keys);

-- T ack D: one
UPDATE "order"
    SET "select" = 'done',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T ack D: many
UPDATE "order"
    SET "select" = 'done',
        "runat" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T ack D with update={'note': ...}: one
UPDATE "order"
    SET """x" = :f2,
        "select" = 'done',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T release R: one
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T release R: many
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T release R: n of a session
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (SELECT "id" FROM "order" WHERE "id" IS NOT NULL AND "select" = 'in hand' AND "id" IN (SELECT "id" FROM "order_xq_owner" WHERE owner >= :session AND owner < :session_end) LIMIT :n)
    RETURNING "id", "number", """x", "select", "runat";

-- T release R: n, whosesoever
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "select" = 'in hand';

-- T release R: n, whosesoever, returned
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T snatch R: one
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T touch T with increment: one
UPDATE "order"
    SET "runat" = CAST(COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment + 0.999 AS INTEGER)
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- W D restart R: one
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'W'
    RETURNING "id", "number", """x", "select", "runat";

-- R W B D switch R: one
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R W B D switch W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R W B D switch B: one
UPDATE "order"
    SET "select" = 'won''t do',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R W B D switch D: one
UPDATE "order"
    SET "select" = 'done',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D kill X: one
DELETE FROM "order"
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D kill X: many
DELETE FROM "order"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D bury B: one
UPDATE "order"
    SET "select" = 'won''t do',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D bury B: many
UPDATE "order"
    SET "select" = 'won''t do',
        "runat" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- B dig R: the oldest
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" = (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_B" WHERE "id" IS NOT NULL AND "select" = 'won''t do' ORDER BY "id" LIMIT 1)
    RETURNING "id", "number", """x", "select", "runat";

-- B dig R: the n oldest
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_B" WHERE "id" IS NOT NULL AND "select" = 'won''t do' ORDER BY "id" LIMIT :n)
    RETURNING "id", "number", """x", "select", "runat";

-- B dig R: one
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'won''t do'
    RETURNING "id", "number", """x", "select", "runat";

-- W delay R: n that are due by runat
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (SELECT "id" FROM "order" INDEXED BY "order_xq_runat" WHERE "id" IS NOT NULL AND "select" = 'W' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) ORDER BY "runat" LIMIT :n)
    RETURNING "id", "number", """x", "select", "runat";

-- T ttr R: n that are due by runat
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (SELECT "id" FROM "order" INDEXED BY "order_xq_runat" WHERE "id" IS NOT NULL AND "select" = 'in hand' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) ORDER BY "runat" LIMIT :n)
    RETURNING "id", "number", """x", "select", "runat";

-- T release W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T snatch W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- W D restart W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" = :k0 AND "select" = 'W'
    RETURNING "id", "number", """x", "select", "runat";

-- B dig W with delay: the oldest
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" = (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_B" WHERE "id" IS NOT NULL AND "select" = 'won''t do' ORDER BY "id" LIMIT 1)
    RETURNING "id", "number", """x", "select", "runat";

-- B dig W with delay: the n oldest
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" IN (SELECT "id" FROM "order" INDEXED BY "order_xq_oldest_B" WHERE "id" IS NOT NULL AND "select" = 'won''t do' ORDER BY "id" LIMIT :n)
    RETURNING "id", "number", """x", "select", "runat";

-- B dig W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay + 0.999 AS INTEGER)
    WHERE "id" = :k0 AND "select" = 'won''t do'
    RETURNING "id", "number", """x", "select", "runat";

-- kill in RTWBD: n, whosesoever
DELETE FROM "order"
    WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done');

-- kill in RTWBD: n, whosesoever, returned
DELETE FROM "order"
    WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done')
    RETURNING "id", "number", """x", "select", "runat";

-- before a kill in each of several states, of which events are counted
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- look at one task, and at who holds it
SELECT "id", "number", """x", "select", "runat", (SELECT o.owner FROM "order_xq_owner" AS o WHERE o."id" = "order"."id") FROM "order"
    WHERE "id" = :k0;

-- R T W B D by_state
SELECT "id", "number", """x", "select", "runat" FROM "order"
    WHERE "select" = 'new'
    ORDER BY "id" LIMIT :n;

-- taken
SELECT "id", (SELECT o.owner FROM "order_xq_owner" AS o WHERE o."id" = "order"."id") FROM "order"
    WHERE "select" = 'in hand';

-- stats
SELECT tube, source, target, n, 1 FROM "order_xq_count";

-- check, recount: what the table holds
SELECT '' AS tube, CASE "select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "order"
    WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done')
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, n, 1 FROM "order_xq_count"
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "order" WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done') GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "order_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count)
    ON CONFLICT (tube, source, target) DO UPDATE
    SET n = n + :count;

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
    WHERE name = 'order';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'order';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'order';

-- uninstall: forget this queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'order';

-- uninstall: forget this queue in xq_operation
DELETE FROM xq_operation
    WHERE queue = 'order';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'order';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- act: forget the operations that ended long ago
DELETE FROM xq_operation
    WHERE queue = 'order' AND state <> 'running' AND chunk > 0 AND updated_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) - :kept_us;

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
    VALUES (:uuid, '', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program), (:uuid, 'order', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program)
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
    VALUES ('order', :tube, :whole)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'order' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('order', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'order' AND name = :name;

-- every: another schedule; and the next firing of one that fires
UPDATE xq_schedule
    SET spec = :spec,
        task = :task,
        next_us = :next_us
    WHERE queue = 'order' AND name = :name;

-- unschedule
DELETE FROM xq_schedule
    WHERE queue = 'order' AND name = :name;

-- schedules
SELECT name, spec, task, next_us FROM xq_schedule
    WHERE queue = 'order' AND next_us IS NOT NULL
    ORDER BY name;

-- when schedules fire
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE queue = 'order' AND name = :name AND next_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- wait: begin
INSERT INTO "order_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- wait: how tasks ended
SELECT waiter, event, target FROM "order_xq_wait"
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM "order_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM "order_xq_wait"
    WHERE session = :uuid;

-- waiting
SELECT k0, session, since FROM "order_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1 FROM "order" INDEXED BY "order_xq_oldest_R"
    WHERE "select" = 'new' LIMIT 1;

-- when something falls due
SELECT MIN(at) - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) FROM (SELECT (SELECT "runat" FROM "order" INDEXED BY "order_xq_runat" WHERE "select" = 'in hand' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at UNION ALL SELECT (SELECT "runat" FROM "order" INDEXED BY "order_xq_runat" WHERE "select" = 'W' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at) AS times;

-- before anything is read within the application's transaction
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- what tasks there are, before another definition is installed
SELECT "select", COUNT(*) FROM "order"
    GROUP BY 1;
