-- The least there is: the core, with integers as statuses.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status after WHERE only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, version VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, fingerprint LONGTEXT NOT NULL, puts BIGINT NOT NULL DEFAULT 0) ENGINE = InnoDB;

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, pid BIGINT, program VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, PRIMARY KEY (uuid, queue)) ENGINE = InnoDB;

-- install: the table xq_session
BEGIN NOT ATOMIC IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'xq_session' AND column_name = 'program') THEN ALTER TABLE xq_session ADD COLUMN host VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_nopad_bin,
        ADD COLUMN pid BIGINT,
        ADD COLUMN program VARCHAR(60) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_nopad_bin; END IF; END;

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, value DOUBLE PRECISION NOT NULL) ENGINE = InnoDB;

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, tube VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (queue, tube, whole)) ENGINE = InnoDB;

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, spec LONGTEXT NOT NULL, task LONGTEXT NOT NULL, next_us BIGINT, PRIMARY KEY (queue, name)) ENGINE = InnoDB;

-- install: the table xq_rate
CREATE TABLE IF NOT EXISTS xq_rate (queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, bucket VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, full_us BIGINT NOT NULL, PRIMARY KEY (queue, bucket)) ENGINE = InnoDB;

-- install: the table xq_operation
CREATE TABLE IF NOT EXISTS xq_operation (id BIGINT AUTO_INCREMENT PRIMARY KEY, queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, event VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, filter LONGTEXT NOT NULL, options LONGTEXT NOT NULL, actor LONGTEXT, reason LONGTEXT, chunk INTEGER NOT NULL, created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, reached LONGTEXT, done BIGINT NOT NULL, skipped BIGINT NOT NULL, looked BIGINT NOT NULL, state VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL) ENGINE = InnoDB;

-- install: the table xq_slot
CREATE TABLE IF NOT EXISTS xq_slot (name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, slot INTEGER NOT NULL, session VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, PRIMARY KEY (name, slot)) ENGINE = InnoDB;

-- install: the table xq_alive
CREATE TABLE IF NOT EXISTS xq_alive (uuid VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, process BIGINT NOT NULL, waits BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (uuid, process)) ENGINE = InnoDB;

-- install: the table job_xq_count
CREATE TABLE IF NOT EXISTS `job_xq_count` (id BIGINT AUTO_INCREMENT PRIMARY KEY, tube VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, source VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, target VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, n BIGINT NOT NULL) ENGINE = InnoDB;

-- install: the table job_xq_wait
CREATE TABLE IF NOT EXISTS `job_xq_wait` (waiter VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', session VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', since DOUBLE, event VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, target VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, PRIMARY KEY (k0, waiter)) ENGINE = InnoDB AS
    SELECT `id` AS k0 FROM `job` LIMIT 0;

-- install: the table job_xq_owner
CREATE TABLE IF NOT EXISTS `job_xq_owner` (owner VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', PRIMARY KEY (`id`)) ENGINE = InnoDB AS
    SELECT `id` FROM `job` LIMIT 0;

-- install: the index job_xq_oldest_R
CREATE INDEX IF NOT EXISTS `job_xq_oldest_R`
    ON `job` (`status`, `id`);

-- install: the trigger job_xq_insert
CREATE OR REPLACE TRIGGER `job_xq_insert` AFTER INSERT
    ON `job` FOR EACH ROW BEGIN
    DECLARE new_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE NEW.`status` WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END;
    IF new_state <> 'X' THEN INSERT INTO `job_xq_count` (tube, source, target, n)
        VALUES ('', 'X', new_state, 1);
    END IF;
END;

-- install: the trigger job_xq_update
CREATE OR REPLACE TRIGGER `job_xq_update` AFTER UPDATE
    ON `job` FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE OLD.`status` WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END;
    DECLARE new_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE NEW.`status` WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END;
    DECLARE other_key BOOLEAN DEFAULT NOT (BINARY OLD.`id` <=> BINARY NEW.`id`);
    IF old_state <> new_state THEN INSERT INTO `job_xq_count` (tube, source, target, n)
        VALUES ('', old_state, new_state, 1);
    END IF;
    IF old_state = 'T' AND (NOT (BINARY OLD.`status` <=> BINARY NEW.`status`) OR other_key) THEN DELETE FROM `job_xq_owner`
        WHERE `job_xq_owner`.`id` = OLD.`id`;
    END IF;
    IF old_state IN ('R', 'T') AND (new_state NOT IN ('R', 'T') OR other_key) AND EXISTS (SELECT 1 FROM `job_xq_wait`) THEN UPDATE `job_xq_wait`
        SET event = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'job' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'),
            target = IF(other_key, 'X', new_state)
        WHERE k0 = OLD.`id` AND event IS NULL;
    END IF;
END;

-- install: the trigger job_xq_delete
CREATE OR REPLACE TRIGGER `job_xq_delete` AFTER DELETE
    ON `job` FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE OLD.`status` WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END;
    IF old_state <> 'X' THEN INSERT INTO `job_xq_count` (tube, source, target, n)
        VALUES ('', old_state, 'X', 1);
    END IF;
    IF old_state = 'T' THEN DELETE FROM `job_xq_owner`
        WHERE `job_xq_owner`.`id` = OLD.`id`;
    END IF;
    IF old_state IN ('R', 'T') AND EXISTS (SELECT 1 FROM `job_xq_wait`) THEN UPDATE `job_xq_wait`
        SET event = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'job' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'),
            target = 'X'
        WHERE k0 = OLD.`id` AND event IS NULL;
    END IF;
END;

-- install: count what is there
INSERT INTO `job_xq_count` (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE `status` WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM `job` WHERE `status` IN (0, 1) GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM `job_xq_count`);

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'job';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('job', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO `job` (`name`, `status`)
    VALUES (:f1_0, 0)
    RETURNING `id`, `name`, `status`;

-- X put R: 2
INSERT INTO `job` (`name`, `status`)
    VALUES (:f1_0, 0), (:f1_1, 0)
    RETURNING `id`, `name`, `status`;

-- R take T: the oldest
SELECT `job`.`id` FROM `job` FORCE INDEX (`job_xq_oldest_R`)
    WHERE `status` = 0
    ORDER BY `id` LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
INSERT INTO `job_xq_owner` (`id`, owner)
    VALUES :rows
    ON DUPLICATE KEY UPDATE owner =
    VALUES(owner);
-- and then
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 1
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- R take T: the n oldest
SELECT `job`.`id` FROM `job` FORCE INDEX (`job_xq_oldest_R`)
    WHERE `status` = 0
    ORDER BY `id` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
INSERT INTO `job_xq_owner` (`id`, owner)
    VALUES :rows
    ON DUPLICATE KEY UPDATE owner =
    VALUES(owner);
-- and then
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 1
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- T ack X: one, of this session
SELECT `job`.`id`, `job`.`name`, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` = :k0 AND `status` = 1 AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X: many, of this session
SELECT `job`.`id`, `job`.`name`, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` IN (:listed) AND `status` = 1 AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X: one, of this very take
SELECT `job`.`id`, `job`.`name`, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` = :k0 AND `status` = 1 AND o.owner = :token FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X: many, of this very take
SELECT `job`.`id`, `job`.`name`, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` IN (:listed) AND `status` = 1 AND o.owner = :token FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X with update={'name': ...}: one
SELECT `job`.`id`, :f1, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` = :k0 AND `status` = 1 AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T release R: one, of this session
SELECT `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` = :k0 AND `status` = 1 AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- T release R: many, of this session
SELECT `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` IN (:listed) AND `status` = 1 AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- T release R: one, of this very take
SELECT `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` = :k0 AND `status` = 1 AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- T release R: many, of this very take
SELECT `job`.`id` FROM `job` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `job`.`id` IN (:listed) AND `status` = 1 AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- T release R: n of a session
SELECT `job`.`id` FROM `job` JOIN `job_xq_owner` AS o
    ON `job`.`id` = o.`id`
    WHERE `status` = 1 AND o.owner >= :session AND o.owner < :session_end LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- T release R: n, whosesoever
UPDATE `job`
    SET `status` = 0
    WHERE `status` = 1;

-- T release R: n, whosesoever, returned
SELECT `job`.`id` FROM `job`
    WHERE `status` = 1 FOR UPDATE;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- T snatch R: one
SELECT `job`.`id` FROM `job` FORCE INDEX (PRIMARY)
    WHERE `job`.`id` = :k0 AND `status` = 1 FOR UPDATE;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- R switch R: one
SELECT `job`.`id` FROM `job` FORCE INDEX (PRIMARY)
    WHERE `job`.`id` = :k0 AND `status` = 0 FOR UPDATE;
-- and where that returns rows
UPDATE `job` FORCE INDEX (PRIMARY)
    SET `status` = 0
    WHERE :chosen;
-- and returned are
SELECT `id`, `name`, `status` FROM `job`
    WHERE :chosen;

-- R T kill X: one
SELECT `job`.`id`, `job`.`name`, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY)
    WHERE `job`.`id` = :k0 AND `status` = 0 FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- R T kill X: many
SELECT `job`.`id`, `job`.`name`, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY)
    WHERE `job`.`id` IN (:listed) AND `status` = 0 FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- kill in RT: n, whosesoever
DELETE `job` FROM `job` FORCE INDEX (PRIMARY)
    WHERE `status` IN (0, 1) AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL;

-- kill in RT: n, whosesoever, returned
SELECT `job`.`id`, `job`.`name`, `job`.`status`, `job`.`id` FROM `job` FORCE INDEX (PRIMARY)
    WHERE `status` IN (0, 1) FOR UPDATE;
-- and where that returns rows
DELETE FROM `job`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- before a kill in each of several states, of which events are counted
SELECT COUNT(*) FROM `job` FORCE INDEX (PRIMARY)
    WHERE `status` IN (0, 1) FOR UPDATE;

-- look at one task, and at who holds it
SELECT `id`, `name`, `status`, (SELECT o.owner FROM `job_xq_owner` AS o WHERE o.`id` = `job`.`id`) FROM `job`
    WHERE `id` = :k0;

-- R T by_state
SELECT `id`, `name`, `status` FROM `job`
    WHERE `status` = 0
    ORDER BY `id` LIMIT :n;

-- taken
SELECT `id`, (SELECT o.owner FROM `job_xq_owner` AS o WHERE o.`id` = `job`.`id`) FROM `job`
    WHERE `status` = 1;

-- stats
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `job_xq_count`
    GROUP BY tube, source, target;

-- check, recount: what the table holds
SELECT '' AS tube, CASE `status` WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM `job`
    WHERE `status` IN (0, 1)
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `job_xq_count`
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE `status` WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM `job` WHERE `status` IN (0, 1) GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO `job_xq_count` (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- on_change: whether a change was committed
CREATE TEMPORARY TABLE IF NOT EXISTS xq_savepoint (number BIGINT PRIMARY KEY) ENGINE = InnoDB;

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
    WHERE name = 'job';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_operation
DELETE FROM xq_operation
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'job';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- act: forget the operations that ended long ago
DELETE FROM xq_operation
    WHERE queue = 'job' AND state <> 'running' AND chunk > 0 AND updated_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) - :kept_us;

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
    VALUES (:uuid, '', COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program), (:uuid, 'job', COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program)
    ON DUPLICATE KEY UPDATE uuid = uuid;

-- session: go on, for good or for a while
UPDATE xq_session
    SET ends = COALESCE(:now, (@@timestamp * 1e0)) + :lease,
        host = :host,
        pid = :pid,
        program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(:now, (@@timestamp * 1e0)));

-- session: join
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(:now, (@@timestamp * 1e0)));

-- session: end later, with session_ttr
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(:now, (@@timestamp * 1e0)) + (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid = :uuid AND (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session: whether it is to end
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends IS NOT NULL;

-- session: whether it is over
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends <= COALESCE(:now, (@@timestamp * 1e0)) FOR UPDATE;

-- session: end
DELETE FROM xq_session
    WHERE uuid = :uuid AND queue = :queue;

-- sessions: who lives, where, and for how long
SELECT uuid, queue, ends - COALESCE(:now, (@@timestamp * 1e0)) FROM xq_session;

-- configure
INSERT INTO xq_setting (name, value)
    VALUES (:name, :value)
    ON DUPLICATE KEY UPDATE value = :value;

-- pause
INSERT INTO xq_pause (queue, tube, whole)
    VALUES ('job', :tube, :whole)
    ON DUPLICATE KEY UPDATE queue = queue;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'job' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('job', :name, :spec, :task, :next_us)
    ON DUPLICATE KEY UPDATE queue = queue;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'job' AND name = :name FOR UPDATE;

-- every: another schedule; and the next firing of one that fires
UPDATE xq_schedule
    SET spec = :spec,
        task = :task,
        next_us = :next_us
    WHERE queue = 'job' AND name = :name;

-- unschedule
DELETE FROM xq_schedule
    WHERE queue = 'job' AND name = :name;

-- schedules
SELECT name, spec, task, next_us FROM xq_schedule
    WHERE queue = 'job' AND next_us IS NOT NULL
    ORDER BY name;

-- when schedules fire
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE queue = 'job' AND name = :name AND next_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FOR UPDATE SKIP LOCKED;

-- wait: begin
INSERT INTO `job_xq_wait` (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (@@timestamp * 1e0)));

-- wait: how tasks ended
SELECT waiter, event, target FROM `job_xq_wait`
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM `job_xq_wait`
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM `job_xq_wait`
    WHERE session = :uuid;

-- waiting
SELECT k0, session, since FROM `job_xq_wait`
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1 FROM `job` FORCE INDEX (`job_xq_oldest_R`)
    WHERE `status` = 0 LIMIT 1;

-- what tasks there are, before another definition is installed
SELECT `status`, COUNT(*) FROM `job`
    GROUP BY 1;
