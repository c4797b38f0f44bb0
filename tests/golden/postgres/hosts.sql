-- Utubes, of which two tasks are taken at a time; priority and ttr.
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

-- install: the table visit_xq_count
CREATE TABLE IF NOT EXISTS "visit_xq_count" (tube text, source text, target text, n bigint NOT NULL);

-- install: the table visit_xq_count
ALTER TABLE "visit_xq_count"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- install: the table visit_xq_wait
CREATE TABLE IF NOT EXISTS "visit_xq_wait" AS
    SELECT "id" AS k0, CAST('' AS text) AS waiter, CAST('' AS text) AS session, CAST(0 AS float8) AS since, CAST('' AS text) AS event, CAST('' AS text) AS target FROM "visit" WITH NO DATA;

-- install: the table visit_xq_wait
CREATE UNIQUE INDEX IF NOT EXISTS "visit_xq_wait_key"
    ON "visit_xq_wait" (k0, waiter);

-- install: the table visit_xq_utube_2
CREATE TABLE IF NOT EXISTS "visit_xq_utube_2" AS
    SELECT (CAST("visit"."host" AS text) COLLATE "C") AS utube, CAST(0 AS bigint) AS taken, "priority" AS priority, "id" AS k0 FROM "visit" WITH NO DATA;

-- install: the table visit_xq_utube_2
CREATE UNIQUE INDEX IF NOT EXISTS "visit_xq_utube_2_key"
    ON "visit_xq_utube_2" (utube);

-- install: the table visit_xq_utube_2
CREATE INDEX IF NOT EXISTS "visit_xq_utube_2_open"
    ON "visit_xq_utube_2" (priority NULLS FIRST, k0)
    WHERE taken < 2 AND k0 IS NOT NULL;

-- install: the table visit_xq_utube_2
ALTER TABLE "visit_xq_utube_2" DROP CONSTRAINT IF EXISTS "visit_xq_utube_2_most";

-- install: the table visit_xq_utube_2
ALTER TABLE "visit_xq_utube_2" ADD CONSTRAINT "visit_xq_utube_2_most" CHECK (taken <= 2);

-- install: the table visit_xq_utube_2
ALTER TABLE "visit_xq_utube_2" ALTER COLUMN taken
    SET NOT NULL;

-- install: the table visit_xq_utube_2
ALTER TABLE "visit_xq_utube_2"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);

-- install: the table visit_xq_dirty_groups
CREATE TABLE IF NOT EXISTS "visit_xq_dirty_groups" AS
    SELECT (CAST("visit"."host" AS text) COLLATE "C") AS utube FROM "visit" WITH NO DATA;

-- install: the table visit_xq_dirty_groups
ALTER TABLE "visit_xq_dirty_groups" ADD COLUMN IF NOT EXISTS id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ADD COLUMN IF NOT EXISTS writer xid8;

-- install: the table visit_xq_dirty_groups
ALTER TABLE "visit_xq_dirty_groups"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- install: the index visit_xq_oldest_R
CREATE INDEX IF NOT EXISTS "visit_xq_oldest_R"
    ON "visit" ("priority" NULLS FIRST, "id")
    WHERE "status" = 'R' AND "host" IS NULL;

-- install: the index visit_xq_utube
CREATE INDEX IF NOT EXISTS "visit_xq_utube"
    ON "visit" ((CAST("host" AS text) COLLATE "C"), "priority" NULLS FIRST, "id")
    WHERE "status" = 'R' AND "host" IS NOT NULL;

-- install: the index visit_xq_runat
CREATE INDEX IF NOT EXISTS "visit_xq_runat"
    ON "visit" ("status", "runat")
    WHERE "status" = 'T' OR "runat" IS NOT NULL;

-- install: the trigger visit_xq_insert
DROP TRIGGER IF EXISTS "visit_xq_insert"
    ON "visit";

-- install: the trigger visit_xq_insert
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "visit_xq_insert"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."visit_xq_count" (tube, source, target, n) SELECT '''', ''X'', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END, COUNT(*) FROM changed WHERE changed."status" IN (''R'', ''T'') GROUP BY 1, 2, 3; WITH xq_c AS MATERIALIZED (SELECT utube, SUM(taken) AS taken FROM (SELECT (CAST(changed."host" AS text) COLLATE "C") AS utube, (CASE WHEN changed."status" = ''T'' THEN 1 ELSE 0 END) AS taken FROM changed WHERE (changed."host" IS NOT NULL AND COALESCE(changed."status" IN (''R'', ''T''), FALSE))) AS xq_e GROUP BY 1), xq_counted AS (INSERT INTO "@here@"."visit_xq_utube_2" (utube, taken) SELECT utube, SUM(taken) FROM xq_c WHERE taken <> 0 GROUP BY 1 ORDER BY 1 ON CONFLICT (utube) DO UPDATE SET taken = "visit_xq_utube_2".taken + excluded.taken, priority = NULL, k0 = NULL) INSERT INTO "@here@"."visit_xq_dirty_groups" (utube, writer) SELECT DISTINCT utube, pg_current_xact_id() FROM xq_c WHERE TRUE; IF (EXISTS (SELECT 1 FROM changed WHERE (changed."status" = ''R'' AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (changed."status" = ''T'' AND changed."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "visit_xq_insert" AFTER INSERT
        ON "visit" REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "visit_xq_insert"();
END $xqx$;

-- install: the trigger visit_xq_delete
DROP TRIGGER IF EXISTS "visit_xq_delete"
    ON "visit";

-- install: the trigger visit_xq_delete
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "visit_xq_delete"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."visit_xq_count" (tube, source, target, n) SELECT '''', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END, ''X'', COUNT(*) FROM changed WHERE changed."status" IN (''R'', ''T'') GROUP BY 1, 2, 3; IF (EXISTS (SELECT 1 FROM "@here@"."visit_xq_wait")) THEN UPDATE "@here@"."visit_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''visit'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."status" IN (''R'', ''T''); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits) AND EXISTS (SELECT 1 FROM changed WHERE changed."status" IN (''R'', ''T''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; WITH xq_c AS MATERIALIZED (SELECT utube, SUM(taken) AS taken FROM (SELECT (CAST(changed."host" AS text) COLLATE "C") AS utube, -(CASE WHEN changed."status" = ''T'' THEN 1 ELSE 0 END) AS taken FROM changed WHERE (changed."host" IS NOT NULL AND COALESCE(changed."status" IN (''R'', ''T''), FALSE))) AS xq_e GROUP BY 1), xq_counted AS (INSERT INTO "@here@"."visit_xq_utube_2" (utube, taken) SELECT utube, SUM(taken) FROM xq_c WHERE taken <> 0 GROUP BY 1 ORDER BY 1 ON CONFLICT (utube) DO UPDATE SET taken = "visit_xq_utube_2".taken + excluded.taken, priority = NULL, k0 = NULL) INSERT INTO "@here@"."visit_xq_dirty_groups" (utube, writer) SELECT DISTINCT utube, pg_current_xact_id() FROM xq_c WHERE TRUE; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "visit_xq_delete" AFTER DELETE
        ON "visit" REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "visit_xq_delete"();
END $xqx$;

-- install: the trigger visit_xq_truncate
DROP TRIGGER IF EXISTS "visit_xq_truncate"
    ON "visit";

-- install: the trigger visit_xq_truncate
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "visit_xq_truncate"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."visit_xq_count" (tube, source, target, n) SELECT '''', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END, ''X'', COUNT(*) FROM "@here@"."visit" AS changed WHERE changed."status" IN (''R'', ''T'') GROUP BY 1, 2, 3; IF (EXISTS (SELECT 1 FROM "@here@"."visit_xq_wait")) THEN UPDATE "@here@"."visit_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''visit'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM "@here@"."visit" AS changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."status" IN (''R'', ''T''); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits) AND EXISTS (SELECT 1 FROM "@here@"."visit" AS changed WHERE changed."status" IN (''R'', ''T''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; DELETE FROM "@here@"."visit_xq_utube_2"; DELETE FROM "@here@"."visit_xq_dirty_groups"; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "visit_xq_truncate" BEFORE TRUNCATE
        ON "visit" FOR EACH STATEMENT EXECUTE FUNCTION "visit_xq_truncate"();
END $xqx$;

-- install: the trigger visit_xq_update
DROP TRIGGER IF EXISTS "visit_xq_update"
    ON "visit";

-- install: the trigger visit_xq_update
DO $xqx$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass('"visit"')) THEN EXECUTE replace('CREATE OR REPLACE FUNCTION "visit_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    DECLARE pair record; old "@here@"."visit"; new "@here@"."visit"; BEGIN FOR pair IN SELECT CAST(was.* AS "@here@"."visit") AS was, CAST(became.* AS "@here@"."visit") AS became FROM was FULL JOIN became ON was."id" = became."id" LOOP old := pair.was; new := pair.became; CONTINUE WHEN (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id" OR OLD."host" IS DISTINCT FROM NEW."host" OR OLD."priority" IS DISTINCT FROM NEW."priority" OR (OLD."runat" IS DISTINCT FROM NEW."runat" AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0))) IS NOT TRUE; IF (CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END <> CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END) THEN INSERT INTO "@here@"."visit_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END, CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END, 1); END IF; IF (COALESCE(OLD."status" IN (''R'', ''T''), FALSE) AND (NOT COALESCE(NEW."status" IN (''R'', ''T''), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."visit_xq_wait")) THEN UPDATE "@here@"."visit_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''visit'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."status" = ''R'' OR (OLD."status" IN (''R'', ''T'') AND NOT NEW."status" = ''T'')) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (NEW."status" = ''T'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = ''''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END LOOP; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "visit_xq_update" AFTER UPDATE
        ON "visit" REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION "visit_xq_update"();
    ELSE EXECUTE replace('CREATE OR REPLACE FUNCTION "visit_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN IF (CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END <> CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END) THEN INSERT INTO "@here@"."visit_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END, CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END, 1); END IF; IF (COALESCE(OLD."status" IN (''R'', ''T''), FALSE) AND (NOT COALESCE(NEW."status" IN (''R'', ''T''), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."visit_xq_wait")) THEN UPDATE "@here@"."visit_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''visit'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."status" = ''R'' OR (OLD."status" IN (''R'', ''T'') AND NOT NEW."status" = ''T'')) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (NEW."status" = ''T'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = ''''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "visit_xq_update" AFTER UPDATE
        ON "visit" FOR EACH ROW WHEN (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id" OR OLD."host" IS DISTINCT FROM NEW."host" OR OLD."priority" IS DISTINCT FROM NEW."priority" OR (OLD."runat" IS DISTINCT FROM NEW."runat" AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0))) EXECUTE FUNCTION "visit_xq_update"();
    END IF;
END $xqx$;

-- install: the trigger visit_xq_update_utube
DROP TRIGGER IF EXISTS "visit_xq_update_utube"
    ON "visit";

-- install: the trigger visit_xq_update_utube
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "visit_xq_update_utube"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN WITH xq_c AS MATERIALIZED (SELECT utube, SUM(taken) AS taken FROM (SELECT (CAST(was."host" AS text) COLLATE "C") AS utube, -(CASE WHEN was."status" = ''T'' THEN 1 ELSE 0 END) AS taken FROM (SELECT "host", "status", "priority", "id" FROM was EXCEPT SELECT "host", "status", "priority", "id" FROM became) AS was WHERE (was."host" IS NOT NULL AND COALESCE(was."status" IN (''R'', ''T''), FALSE)) UNION ALL SELECT (CAST(became."host" AS text) COLLATE "C") AS utube, (CASE WHEN became."status" = ''T'' THEN 1 ELSE 0 END) AS taken FROM (SELECT "host", "status", "priority", "id" FROM became EXCEPT SELECT "host", "status", "priority", "id" FROM was) AS became WHERE (became."host" IS NOT NULL AND COALESCE(became."status" IN (''R'', ''T''), FALSE))) AS xq_e GROUP BY 1), xq_counted AS (INSERT INTO "@here@"."visit_xq_utube_2" (utube, taken) SELECT utube, SUM(taken) FROM xq_c WHERE taken <> 0 GROUP BY 1 ORDER BY 1 ON CONFLICT (utube) DO UPDATE SET taken = "visit_xq_utube_2".taken + excluded.taken, priority = NULL, k0 = NULL) INSERT INTO "@here@"."visit_xq_dirty_groups" (utube, writer) SELECT DISTINCT utube, pg_current_xact_id() FROM xq_c WHERE TRUE; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "visit_xq_update_utube" AFTER UPDATE
        ON "visit" REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION "visit_xq_update_utube"();
END $xqx$;

-- install: count what is there
INSERT INTO "visit_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit" WHERE "status" IN ('R', 'T') GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "visit_xq_count");

-- install, recount: the heads of utubes
DELETE FROM "visit_xq_utube_2";

-- install, recount: the heads of utubes
INSERT INTO "visit_xq_utube_2" (utube, taken)
    SELECT (CAST("visit"."host" AS text) COLLATE "C"), SUM((CASE WHEN "visit"."status" = 'T' THEN 1 ELSE 0 END)) FROM "visit"
    WHERE ("visit"."host" IS NOT NULL AND COALESCE("visit"."status" IN ('R', 'T'), FALSE))
    GROUP BY 1
    ORDER BY 1
    ON CONFLICT (utube) DO UPDATE
    SET taken = "visit_xq_utube_2".taken + excluded.taken,
        priority = NULL,
        k0 = NULL;

-- install, recount: the heads of utubes
INSERT INTO "visit_xq_dirty_groups" (utube, writer)
    SELECT DISTINCT (CAST("visit"."host" AS text) COLLATE "C"), pg_current_xact_id() FROM "visit"
    WHERE ("visit"."host" IS NOT NULL AND COALESCE("visit"."status" IN ('R'), FALSE));

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'visit';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('visit', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "visit" ("url", "host", "priority", "status", "runat", "owner")
    VALUES (:f1_0, :f2_0, :f5_0, 'R', NULL, NULL)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- X put R: 2
INSERT INTO "visit" ("url", "host", "priority", "status", "runat", "owner")
    VALUES (:f1_0, :f2_0, :f5_0, 'R', NULL, NULL), (:f1_1, :f2_1, :f5_1, 'R', NULL, NULL)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T: the oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(60.0 AS float8),
        "owner" = :owner
    WHERE "id" = (WITH xq_p0 AS MATERIALIZED (SELECT xq_t.* FROM "visit_xq_utube_2" AS xq_h CROSS JOIN LATERAL (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE xq_h.k0 = "visit"."id" AND "visit"."status" = 'R' FOR UPDATE SKIP LOCKED) AS xq_t WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL ORDER BY xq_h.priority NULLS FIRST, xq_h.k0 LIMIT 1 FOR UPDATE OF xq_h SKIP LOCKED), xq_p1 AS MATERIALIZED (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority" NULLS FIRST, "visit"."id" LIMIT 1 FOR UPDATE SKIP LOCKED), xq_picked AS MATERIALIZED (SELECT "id" FROM (SELECT * FROM xq_p0 UNION ALL SELECT * FROM xq_p1) AS xq_p ORDER BY "priority" NULLS FIRST, "id" LIMIT 1) SELECT * FROM xq_picked)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T: the n oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(60.0 AS float8),
        "owner" = :owner
    WHERE "id" IN (WITH xq_p0 AS MATERIALIZED (SELECT xq_t.* FROM "visit_xq_utube_2" AS xq_h CROSS JOIN LATERAL (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE xq_h.k0 = "visit"."id" AND "visit"."status" = 'R' FOR UPDATE SKIP LOCKED) AS xq_t WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL ORDER BY xq_h.priority NULLS FIRST, xq_h.k0 LIMIT :n FOR UPDATE OF xq_h SKIP LOCKED), xq_p1 AS MATERIALIZED (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority" NULLS FIRST, "visit"."id" LIMIT :n FOR UPDATE SKIP LOCKED), xq_picked AS MATERIALIZED (SELECT "id" FROM (SELECT * FROM xq_p0 UNION ALL SELECT * FROM xq_p1) AS xq_p ORDER BY "priority" NULLS FIRST, "id" LIMIT :n) SELECT * FROM xq_picked)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T with ttr: the oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8),
        "owner" = :owner
    WHERE "id" = (WITH xq_p0 AS MATERIALIZED (SELECT xq_t.* FROM "visit_xq_utube_2" AS xq_h CROSS JOIN LATERAL (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE xq_h.k0 = "visit"."id" AND "visit"."status" = 'R' FOR UPDATE SKIP LOCKED) AS xq_t WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL ORDER BY xq_h.priority NULLS FIRST, xq_h.k0 LIMIT 1 FOR UPDATE OF xq_h SKIP LOCKED), xq_p1 AS MATERIALIZED (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority" NULLS FIRST, "visit"."id" LIMIT 1 FOR UPDATE SKIP LOCKED), xq_picked AS MATERIALIZED (SELECT "id" FROM (SELECT * FROM xq_p0 UNION ALL SELECT * FROM xq_p1) AS xq_p ORDER BY "priority" NULLS FIRST, "id" LIMIT 1) SELECT * FROM xq_picked)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T with ttr: the n oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8),
        "owner" = :owner
    WHERE "id" IN (WITH xq_p0 AS MATERIALIZED (SELECT xq_t.* FROM "visit_xq_utube_2" AS xq_h CROSS JOIN LATERAL (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE xq_h.k0 = "visit"."id" AND "visit"."status" = 'R' FOR UPDATE SKIP LOCKED) AS xq_t WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL ORDER BY xq_h.priority NULLS FIRST, xq_h.k0 LIMIT :n FOR UPDATE OF xq_h SKIP LOCKED), xq_p1 AS MATERIALIZED (SELECT "visit"."priority", "visit"."id" FROM "visit" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority" NULLS FIRST, "visit"."id" LIMIT :n FOR UPDATE SKIP LOCKED), xq_picked AS MATERIALIZED (SELECT "id" FROM (SELECT * FROM xq_p0 UNION ALL SELECT * FROM xq_p1) AS xq_p ORDER BY "priority" NULLS FIRST, "id" LIMIT :n) SELECT * FROM xq_picked)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: one, of this session
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: many, of this session
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: one, of this very take
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: many, of this very take
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X with update={'url': ...}: one
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", :f1, "host", "status", "runat", "priority", "owner";

-- T release R: one, of this session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: many, of this session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: one, of this very take
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: many, of this very take
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: n of a session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "visit" WHERE "status" = 'T' AND ("owner" COLLATE "C") >= :session AND ("owner" COLLATE "C") < :session_end LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: n, whosesoever
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "status" = 'T';

-- T release R: n, whosesoever, returned
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "status" = 'T'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T snatch R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T touch T with increment: one, of this session
UPDATE "visit"
    SET "runat" = COALESCE("runat", COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))) + CAST(:increment AS float8)
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T touch T with increment: one, of this very take
UPDATE "visit"
    SET "runat" = COALESCE("runat", COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))) + CAST(:increment AS float8)
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R switch R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R T kill X: one
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R T kill X: many
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'R'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ttr R: n that are due by runat
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "visit" WHERE "status" = 'T' AND "runat" <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) ORDER BY "runat" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- kill in RT: n, whosesoever
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN ('R', 'T');

-- kill in RT: n, whosesoever, returned
DELETE FROM "visit"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN ('R', 'T')
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- before a kill in each of several states, of which events are counted
SELECT COUNT(*) FROM (SELECT 1 FROM "visit" WHERE "status" IN ('R', 'T') FOR UPDATE) AS held;

-- look at one task, and at who holds it
SELECT "id", "url", "host", "status", "runat", "priority", "owner", "owner" FROM "visit"
    WHERE "id" = :k0;

-- R T by_state
SELECT "id", "url", "host", "status", "runat", "priority", "owner" FROM "visit"
    WHERE "status" = 'R'
    ORDER BY "priority" NULLS FIRST, "id" LIMIT :n;

-- taken
SELECT "id", "owner" FROM "visit"
    WHERE "status" = 'T';

-- stats
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "visit_xq_count"
    GROUP BY tube, source, target;

-- check, recount: what the table holds
SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit"
    WHERE "status" IN ('R', 'T')
    GROUP BY 1, 2;

-- check: heads of utubes that are wrong
SELECT (SELECT COUNT(*) FROM (SELECT (CAST("visit"."host" AS text) COLLATE "C") AS utube, SUM((CASE WHEN "visit"."status" = 'T' THEN 1 ELSE 0 END)) AS taken FROM "visit" WHERE ("visit"."host" IS NOT NULL AND COALESCE("visit"."status" IN ('R', 'T'), FALSE)) GROUP BY 1) AS xq_t LEFT JOIN "visit_xq_utube_2" AS xq_h ON xq_h.utube = xq_t.utube WHERE COALESCE(xq_h.taken, 0) <> xq_t.taken OR (xq_t.taken < 2 AND (xq_h.utube IS NULL OR xq_h.priority IS DISTINCT FROM (SELECT xq_first."priority" FROM "visit" AS xq_first WHERE xq_first."host" IS NOT NULL AND (CAST(xq_first."host" AS text) COLLATE "C") = xq_t.utube AND xq_first."status" = 'R' ORDER BY xq_first."priority" NULLS FIRST, xq_first."id" LIMIT 1) OR xq_h.k0 IS DISTINCT FROM (SELECT xq_first."id" FROM "visit" AS xq_first WHERE xq_first."host" IS NOT NULL AND (CAST(xq_first."host" AS text) COLLATE "C") = xq_t.utube AND xq_first."status" = 'R' ORDER BY xq_first."priority" NULLS FIRST, xq_first."id" LIMIT 1)) AND xq_t.utube NOT IN (SELECT utube FROM "visit_xq_dirty_groups"))) + (SELECT COUNT(*) FROM (SELECT utube FROM "visit_xq_utube_2" AS xq_h WHERE TRUE AND xq_h.utube NOT IN (SELECT utube FROM "visit_xq_dirty_groups") EXCEPT SELECT (CAST("visit"."host" AS text) COLLATE "C") FROM "visit" WHERE ("visit"."host" IS NOT NULL AND COALESCE("visit"."status" IN ('R', 'T'), FALSE))) AS xq_e);

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "visit_xq_count"
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit" WHERE "status" IN ('R', 'T') GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "visit_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- on_change: whether a change was committed
SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) - MIN(age(transactionid)) FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock';

-- on_change: whether a change was committed
SELECT 1
    WHERE pg_xact_status(CAST(CAST(:savepoint AS text) AS xid8)) = 'committed';

-- what is installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'visit';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'visit';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- sessions
SELECT uuid, since FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session: that it is there, and may hold tasks of this queue
INSERT INTO xq_session (uuid, queue, since, ends)
    SELECT :uuid, queue, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)), COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease FROM (VALUES (''), ('visit')) AS mine (queue)
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
    VALUES ('visit', :tube, :whole)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'visit' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('visit', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'visit' AND name = :name FOR UPDATE;

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
SELECT queue, name, next_us - CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE queue = 'visit' AND name = :name AND next_us <= CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FOR UPDATE SKIP LOCKED;

-- wait: begin
INSERT INTO "visit_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- wait: how tasks ended
SELECT waiter, event, target FROM "visit_xq_wait"
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM "visit_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM "visit_xq_wait"
    WHERE session = :uuid;

-- waiting
SELECT k0, session, since FROM "visit_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1
    WHERE EXISTS (SELECT 1 FROM "visit_xq_utube_2" AS xq_h JOIN "visit" ON xq_h.k0 = "visit"."id" WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL AND "visit"."status" = 'R' ORDER BY xq_h.priority NULLS FIRST, xq_h.k0 LIMIT 1) OR EXISTS (SELECT 1 FROM "visit" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority" NULLS FIRST, "visit"."id" LIMIT 1) OR EXISTS (SELECT 0 FROM "visit_xq_dirty_groups" LIMIT 1);

-- when something falls due
SELECT MIN(at) - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FROM (SELECT (SELECT "runat" FROM "visit" WHERE "status" = 'T' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at UNION ALL SELECT (SELECT 0 FROM "visit_xq_dirty_groups" LIMIT 1) AS at) AS times;

-- what tasks there are, before another definition is installed
SELECT "status", COUNT(*) FROM "visit"
    GROUP BY 1;
