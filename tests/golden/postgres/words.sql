-- Words as statuses and as key in a table with odd names: unique, limit, not_check_session, buried by anyone.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status after WHERE only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name TEXT PRIMARY KEY, version TEXT NOT NULL, fingerprint TEXT NOT NULL);

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid TEXT NOT NULL, queue TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, PRIMARY KEY (uuid, queue));

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue TEXT NOT NULL, tube TEXT NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (queue, tube, whole));

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, task TEXT NOT NULL, next_us BIGINT, PRIMARY KEY (queue, name));

-- install: the table xq_alive
CREATE TABLE IF NOT EXISTS xq_alive (uuid TEXT NOT NULL, process BIGINT NOT NULL, waits BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (uuid, process));

-- install: the table order_xq_count
CREATE TABLE IF NOT EXISTS "order_xq_count" (tube text, source text, target text, n bigint NOT NULL);

-- install: the table order_xq_count
ALTER TABLE "order_xq_count"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- install: the table order_xq_wait
CREATE TABLE IF NOT EXISTS "order_xq_wait" AS
    SELECT "id" AS k0, CAST('' AS text) AS waiter, CAST('' AS text) AS session, CAST(0 AS float8) AS since, CAST('' AS text) AS event, CAST('' AS text) AS target FROM "order" WITH NO DATA;

-- install: the table order_xq_wait
CREATE UNIQUE INDEX IF NOT EXISTS "order_xq_wait_key"
    ON "order_xq_wait" (k0, waiter);

-- install: the table order_xq_owner
CREATE TABLE IF NOT EXISTS "order_xq_owner" AS
    SELECT "id", CAST('' AS text) AS owner FROM "order" WITH NO DATA;

-- install: the table order_xq_owner
CREATE UNIQUE INDEX IF NOT EXISTS "order_xq_owner_key"
    ON "order_xq_owner" ("id");

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
DROP TRIGGER IF EXISTS "order_xq_insert"
    ON "order";

-- install: the trigger order_xq_insert
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "order_xq_insert"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."order_xq_count" (tube, source, target, n) SELECT '''', ''X'', CASE changed."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END, COUNT(*) FROM changed WHERE changed."select" IN (''new'', ''in hand'', ''W'', ''won''''t do'', ''done'') GROUP BY 1, 2, 3; IF (EXISTS (SELECT 1 FROM changed WHERE (changed."select" = ''new'' AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (changed."select" = ''in hand'' AND changed."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')) OR (changed."select" = ''W'' AND changed."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "order_xq_insert" AFTER INSERT
        ON "order" REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "order_xq_insert"();
END $xqx$;

-- install: the trigger order_xq_delete
DROP TRIGGER IF EXISTS "order_xq_delete"
    ON "order";

-- install: the trigger order_xq_delete
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "order_xq_delete"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."order_xq_count" (tube, source, target, n) SELECT '''', CASE changed."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END, ''X'', COUNT(*) FROM changed WHERE changed."select" IN (''new'', ''in hand'', ''W'', ''won''''t do'', ''done'') GROUP BY 1, 2, 3; DELETE FROM "@here@"."order_xq_owner" AS o USING (SELECT * FROM changed) AS changed WHERE o."id" = changed."id" AND changed."select" = ''in hand''; IF (EXISTS (SELECT 1 FROM "@here@"."order_xq_wait")) THEN UPDATE "@here@"."order_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''order'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."select" IN (''new'', ''in hand'', ''W''); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits) AND EXISTS (SELECT 1 FROM changed WHERE changed."select" IN (''new'', ''in hand'', ''W'', ''won''''t do''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "order_xq_delete" AFTER DELETE
        ON "order" REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "order_xq_delete"();
END $xqx$;

-- install: the trigger order_xq_truncate
DROP TRIGGER IF EXISTS "order_xq_truncate"
    ON "order";

-- install: the trigger order_xq_truncate
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "order_xq_truncate"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."order_xq_count" (tube, source, target, n) SELECT '''', CASE changed."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END, ''X'', COUNT(*) FROM "@here@"."order" AS changed WHERE changed."select" IN (''new'', ''in hand'', ''W'', ''won''''t do'', ''done'') GROUP BY 1, 2, 3; DELETE FROM "@here@"."order_xq_owner" AS o USING (SELECT * FROM "@here@"."order" AS changed) AS changed WHERE o."id" = changed."id" AND changed."select" = ''in hand''; IF (EXISTS (SELECT 1 FROM "@here@"."order_xq_wait")) THEN UPDATE "@here@"."order_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''order'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM "@here@"."order" AS changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."select" IN (''new'', ''in hand'', ''W''); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits) AND EXISTS (SELECT 1 FROM "@here@"."order" AS changed WHERE changed."select" IN (''new'', ''in hand'', ''W'', ''won''''t do''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "order_xq_truncate" BEFORE TRUNCATE
        ON "order" FOR EACH STATEMENT EXECUTE FUNCTION "order_xq_truncate"();
END $xqx$;

-- install: the trigger order_xq_update
DROP TRIGGER IF EXISTS "order_xq_update"
    ON "order";

-- install: the trigger order_xq_update
DO $xqx$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass('"order"')) THEN EXECUTE replace('CREATE OR REPLACE FUNCTION "order_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    DECLARE pair record; old "@here@"."order"; new "@here@"."order"; BEGIN FOR pair IN SELECT CAST(was.* AS "@here@"."order") AS was, CAST(became.* AS "@here@"."order") AS became FROM was FULL JOIN became ON was."id" = became."id" LOOP old := pair.was; new := pair.became; CONTINUE WHEN (OLD."select" IS DISTINCT FROM NEW."select" OR OLD."id" IS DISTINCT FROM NEW."id" OR (OLD."runat" IS DISTINCT FROM NEW."runat" AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0))) IS NOT TRUE; IF (CASE OLD."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END <> CASE NEW."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END) THEN INSERT INTO "@here@"."order_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END, CASE NEW."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END, 1); END IF; IF (OLD."select" = ''in hand'' AND (OLD."select" IS DISTINCT FROM NEW."select" OR OLD."id" IS DISTINCT FROM NEW."id")) THEN DELETE FROM "@here@"."order_xq_owner" WHERE "order_xq_owner"."id" = OLD."id"; END IF; IF (COALESCE(OLD."select" IN (''new'', ''in hand'', ''W''), FALSE) AND (NOT COALESCE(NEW."select" IN (''new'', ''in hand'', ''W''), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."order_xq_wait")) THEN UPDATE "@here@"."order_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''order'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."select" = ''new'' OR (OLD."select" IN (''new'', ''in hand'', ''W'', ''won''''t do'') AND NOT NEW."select" IN (''new'', ''in hand'', ''W'', ''won''''t do''))) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (NEW."select" = ''in hand'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')) OR (NEW."select" = ''W'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = ''''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END LOOP; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "order_xq_update" AFTER UPDATE
        ON "order" REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION "order_xq_update"();
    ELSE EXECUTE replace('CREATE OR REPLACE FUNCTION "order_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN IF (CASE OLD."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END <> CASE NEW."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END) THEN INSERT INTO "@here@"."order_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END, CASE NEW."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END, 1); END IF; IF (OLD."select" = ''in hand'' AND (OLD."select" IS DISTINCT FROM NEW."select" OR OLD."id" IS DISTINCT FROM NEW."id")) THEN DELETE FROM "@here@"."order_xq_owner" WHERE "order_xq_owner"."id" = OLD."id"; END IF; IF (COALESCE(OLD."select" IN (''new'', ''in hand'', ''W''), FALSE) AND (NOT COALESCE(NEW."select" IN (''new'', ''in hand'', ''W''), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."order_xq_wait")) THEN UPDATE "@here@"."order_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''order'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."select" WHEN ''new'' THEN ''R'' WHEN ''in hand'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''won''''t do'' THEN ''B'' WHEN ''done'' THEN ''D'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."select" = ''new'' OR (OLD."select" IN (''new'', ''in hand'', ''W'', ''won''''t do'') AND NOT NEW."select" IN (''new'', ''in hand'', ''W'', ''won''''t do''))) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (NEW."select" = ''in hand'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')) OR (NEW."select" = ''W'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = ''''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "order_xq_update" AFTER UPDATE
        ON "order" FOR EACH ROW WHEN (OLD."select" IS DISTINCT FROM NEW."select" OR OLD."id" IS DISTINCT FROM NEW."id" OR (OLD."runat" IS DISTINCT FROM NEW."runat" AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0))) EXECUTE FUNCTION "order_xq_update"();
    END IF;
END $xqx$;

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
SELECT 1
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000;
-- and where that returns rows
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    VALUES (:f0_0, :f1_0, :f2_0, 'new', NULL)
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- X put R: 2
SELECT 1
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000;
-- and where that returns rows
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    VALUES (:f0_0, :f1_0, :f2_0, 'new', NULL), (:f0_1, :f1_1, :f2_1, 'new', NULL)
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- X put W with delay: 1
SELECT 1
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000;
-- and where that returns rows
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    VALUES (:f0_0, :f1_0, :f2_0, 'W', CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint))
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- X put W with delay: 2
SELECT 1
    WHERE (SELECT COALESCE(SUM(CASE WHEN target IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END - CASE WHEN source IN ('R', 'T', 'W', 'B') THEN n ELSE 0 END), 0) FROM "order_xq_count" WHERE tube = '') + :adding <= 100000;
-- and where that returns rows
INSERT INTO "order" ("id", "number", """x", "select", "runat")
    VALUES (:f0_0, :f1_0, :f2_0, 'W', CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)), (:f0_1, :f1_1, :f2_1, 'W', CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint))
    ON CONFLICT ("number")
    WHERE "select" IN ('new', 'in hand', 'W') DO NOTHING
    RETURNING "id", "number", """x", "select", "runat";

-- put: the row that holds a value of unique
SELECT "id", "number", """x", "select", "runat" FROM "order"
    WHERE "number" = :unique AND "select" IN ('new', 'in hand', 'W') FOR UPDATE;

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
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R take T: the oldest
WITH moved AS (UPDATE "order" SET "select" = 'in hand', "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(NULL AS float8)) AS bigint) WHERE "id" = (SELECT "id" FROM "order" WHERE "select" = 'new' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING "id", "number", """x", "select", "runat"), remembered AS (INSERT INTO "order_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- R take T: the n oldest
WITH moved AS (UPDATE "order" SET "select" = 'in hand', "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(NULL AS float8)) AS bigint) WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "order" WHERE "select" = 'new' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked) RETURNING "id", "number", """x", "select", "runat"), remembered AS (INSERT INTO "order_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- R take T with ttr: the oldest
WITH moved AS (UPDATE "order" SET "select" = 'in hand', "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8)) AS bigint) WHERE "id" = (SELECT "id" FROM "order" WHERE "select" = 'new' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING "id", "number", """x", "select", "runat"), remembered AS (INSERT INTO "order_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- R take T with ttr: the n oldest
WITH moved AS (UPDATE "order" SET "select" = 'in hand', "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8)) AS bigint) WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "order" WHERE "select" = 'new' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked) RETURNING "id", "number", """x", "select", "runat"), remembered AS (INSERT INTO "order_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- T ack D: one
UPDATE "order"
    SET "select" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'done' END,
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T ack D: many
UPDATE "order"
    SET "select" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'done' END,
        "runat" = NULL
    WHERE "id" IN (SELECT CAST(listed AS text) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T ack D with update={'note': ...}: one
UPDATE "order"
    SET """x" = :f2,
        "select" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'done' END,
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
    WHERE "id" IN (SELECT CAST(listed AS text) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T release R: n of a session
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT t."id" FROM "order" AS t, "order_xq_owner" AS o WHERE o."id" = t."id" AND t."select" = 'in hand' AND o.owner COLLATE "C" >= :session AND o.owner COLLATE "C" < :session_end LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
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
    SET "runat" = CAST(ceil(COALESCE("runat", COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))) + CAST(:increment AS float8)) AS bigint)
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
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R W B D switch B: one
UPDATE "order"
    SET "select" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'won''t do' END,
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R W B D switch D: one
UPDATE "order"
    SET "select" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'done' END,
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D kill X: one
DELETE FROM "order"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D kill X: many
DELETE FROM "order"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (SELECT CAST(listed AS text) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D bury B: one
UPDATE "order"
    SET "select" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'won''t do' END,
        "runat" = NULL
    WHERE "id" = :k0 AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- R T W B D bury B: many
UPDATE "order"
    SET "select" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'won''t do' END,
        "runat" = NULL
    WHERE "id" IN (SELECT CAST(listed AS text) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "select" = 'new'
    RETURNING "id", "number", """x", "select", "runat";

-- B dig R: the oldest
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" = (SELECT "id" FROM "order" WHERE "select" = 'won''t do' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING "id", "number", """x", "select", "runat";

-- B dig R: the n oldest
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "order" WHERE "select" = 'won''t do' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
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
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "order" WHERE "select" = 'W' AND "runat" <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) ORDER BY "runat" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "number", """x", "select", "runat";

-- T ttr R: n that are due by runat
UPDATE "order"
    SET "select" = 'new',
        "runat" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "order" WHERE "select" = 'in hand' AND "runat" <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) ORDER BY "runat" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "number", """x", "select", "runat";

-- T release W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- T snatch W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" = :k0 AND "select" = 'in hand'
    RETURNING "id", "number", """x", "select", "runat";

-- W D restart W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" = :k0 AND "select" = 'W'
    RETURNING "id", "number", """x", "select", "runat";

-- B dig W with delay: the oldest
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" = (SELECT "id" FROM "order" WHERE "select" = 'won''t do' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING "id", "number", """x", "select", "runat";

-- B dig W with delay: the n oldest
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "order" WHERE "select" = 'won''t do' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "number", """x", "select", "runat";

-- B dig W with delay: one
UPDATE "order"
    SET "select" = 'W',
        "runat" = CAST(ceil(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)) AS bigint)
    WHERE "id" = :k0 AND "select" = 'won''t do'
    RETURNING "id", "number", """x", "select", "runat";

-- kill in RTWBD: n, whosesoever
DELETE FROM "order"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "select" IN ('new', 'in hand', 'W', 'won''t do', 'done');

-- kill in RTWBD: n, whosesoever, returned
DELETE FROM "order"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "select" IN ('new', 'in hand', 'W', 'won''t do', 'done')
    RETURNING "id", "number", """x", "select", "runat";

-- before a kill in each of several states, of which events are counted
SELECT COUNT(*) FROM (SELECT 1 FROM "order" WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done') FOR UPDATE) AS held;

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
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "order_xq_count"
    GROUP BY tube, source, target;

-- check, recount: what the table holds
SELECT '' AS tube, CASE "select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "order"
    WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done')
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "order_xq_count"
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "select" WHEN 'new' THEN 'R' WHEN 'in hand' THEN 'T' WHEN 'W' THEN 'W' WHEN 'won''t do' THEN 'B' WHEN 'done' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "order" WHERE "select" IN ('new', 'in hand', 'W', 'won''t do', 'done') GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "order_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- on_change: whether a change was committed
SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) - MIN(age(transactionid)) FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock';

-- on_change: whether a change was committed
SELECT 1
    WHERE pg_xact_status(CAST(CAST(:savepoint AS text) AS xid8)) = 'committed';

-- what is installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'order';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'order';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'order';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'order';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- sessions
SELECT uuid, since FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session: that it is there, and may hold tasks of this queue
INSERT INTO xq_session (uuid, queue, since, ends)
    SELECT :uuid, queue, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)), COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease FROM (VALUES (''), ('order')) AS mine (queue)
    WHERE NOT EXISTS (SELECT 1 FROM xq_session WHERE uuid = :uuid AND queue = mine.queue)
    ON CONFLICT (uuid, queue) DO NOTHING;

-- session: go on, for good or for a while
UPDATE xq_session
    SET ends = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- session: join
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- session: end later, with session_ttr
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid = :uuid AND (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session: whether it is to end
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends IS NOT NULL;

-- session: whether it is over
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FOR UPDATE;

-- session: end
DELETE FROM xq_session
    WHERE uuid = :uuid AND queue = :queue;

-- sessions: who lives, where, and for how long
SELECT uuid, queue, ends - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FROM xq_session;

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
SELECT CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('order', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'order' AND name = :name FOR UPDATE;

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
SELECT queue, name, next_us - CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE queue = 'order' AND name = :name AND next_us <= CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FOR UPDATE SKIP LOCKED;

-- wait: begin
INSERT INTO "order_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

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
SELECT 1 FROM "order"
    WHERE "select" = 'new' LIMIT 1;

-- when something falls due
SELECT MIN(at) - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FROM (SELECT (SELECT "runat" FROM "order" WHERE "select" = 'in hand' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at UNION ALL SELECT (SELECT "runat" FROM "order" WHERE "select" = 'W' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at) AS times;

-- what tasks there are, before another definition is installed
SELECT "select", COUNT(*) FROM "order"
    GROUP BY 1;
