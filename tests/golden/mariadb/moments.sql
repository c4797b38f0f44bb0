-- A key of two parts, and times that are date-times: delayed, buried, lifetime, ttr, history.
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

-- install: the table visit_xq_count
CREATE TABLE IF NOT EXISTS `visit_xq_count` (id BIGINT AUTO_INCREMENT PRIMARY KEY, tube VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, source VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, target VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, n BIGINT NOT NULL) ENGINE = InnoDB;

-- install: the table visit_xq_wait
CREATE TABLE IF NOT EXISTS `visit_xq_wait` (waiter VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', session VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', since DOUBLE, event VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, target VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, PRIMARY KEY (k0, k1, waiter)) ENGINE = InnoDB AS
    SELECT `host` AS k0, `number` AS k1 FROM `visit` LIMIT 0;

-- install: the table visit_xq_owner
CREATE TABLE IF NOT EXISTS `visit_xq_owner` (owner VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', PRIMARY KEY (`host`, `number`)) ENGINE = InnoDB AS
    SELECT `host`, `number` FROM `visit` LIMIT 0;

-- install: the table visit_xq_history
CREATE TABLE IF NOT EXISTS `visit_xq_history` (`id` BIGINT AUTO_INCREMENT PRIMARY KEY, `at_us` BIGINT, `key` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, `tube` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, `source` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, `target` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, `event` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, `owner` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, `attempt` BIGINT, `actor` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, `reason` VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin) ENGINE = InnoDB;

-- install: the table visit_xq_history
ALTER TABLE `visit_xq_history` ADD COLUMN IF NOT EXISTS `actor` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_nopad_bin,
        ADD COLUMN IF NOT EXISTS `reason` VARCHAR(1000) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- install: the index visit_xq_oldest_R
CREATE INDEX IF NOT EXISTS `visit_xq_oldest_R`
    ON `visit` (`status`, `host`(191), `number`);

-- install: the index visit_xq_oldest_B
CREATE INDEX IF NOT EXISTS `visit_xq_oldest_B`
    ON `visit` (`status`, `host`(191), `number`);

-- install: the index visit_xq_deadline
CREATE INDEX IF NOT EXISTS `visit_xq_deadline`
    ON `visit` (`status`, `deadline`);

-- install: the index visit_xq_runat
CREATE INDEX IF NOT EXISTS `visit_xq_runat`
    ON `visit` (`status`, `runat`);

-- install: the trigger visit_xq_insert
CREATE OR REPLACE TRIGGER `visit_xq_insert` AFTER INSERT
    ON `visit` FOR EACH ROW BEGIN
    DECLARE new_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END;
    DECLARE event_name VARCHAR(255) CHARACTER
        SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write');
    DECLARE at_us BIGINT DEFAULT ROUND(IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR) AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1) <> '', SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1) * 1e0, (@@timestamp * 1e0)) * 1000000);
    DECLARE new_owner VARCHAR(64) CHARACTER
        SET utf8mb4 COLLATE utf8mb4_nopad_bin;
    IF new_state <> 'X' THEN INSERT INTO `visit_xq_count` (tube, source, target, n)
        VALUES ('', 'X', new_state, 1);
    END IF;
    IF new_state = 'T' THEN
        SET new_owner = (SELECT o.owner FROM `visit_xq_owner` AS o WHERE o.`host` = NEW.`host` AND o.`number` = NEW.`number` LOCK IN SHARE MODE);
    END IF;
    IF new_state <> 'X' THEN INSERT INTO `visit_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`)
        VALUES (CONVERT(JSON_ARRAY(NEW.`host`, NEW.`number`) USING utf8mb4) COLLATE utf8mb4_nopad_bin, NULL, NULL, at_us, 'X', new_state, event_name, new_owner);
    END IF;
END;

-- install: the trigger visit_xq_update
CREATE OR REPLACE TRIGGER `visit_xq_update` AFTER UPDATE
    ON `visit` FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END;
    DECLARE new_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END;
    DECLARE other_key BOOLEAN DEFAULT NOT (BINARY OLD.`host` <=> BINARY NEW.`host`) OR NOT (BINARY OLD.`number` <=> BINARY NEW.`number`);
    DECLARE event_name VARCHAR(255) CHARACTER
        SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write');
    DECLARE at_us BIGINT DEFAULT ROUND(IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR) AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1) <> '', SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1) * 1e0, (@@timestamp * 1e0)) * 1000000);
    DECLARE old_owner, new_owner VARCHAR(64) CHARACTER
        SET utf8mb4 COLLATE utf8mb4_nopad_bin;
    IF old_state <> new_state THEN INSERT INTO `visit_xq_count` (tube, source, target, n)
        VALUES ('', old_state, new_state, 1);
    END IF;
    IF old_state = 'T' THEN
        SET old_owner = (SELECT o.owner FROM `visit_xq_owner` AS o WHERE o.`host` = OLD.`host` AND o.`number` = OLD.`number` LOCK IN SHARE MODE);
    END IF;
    IF new_state = 'T' THEN
        SET new_owner = (SELECT o.owner FROM `visit_xq_owner` AS o WHERE o.`host` = NEW.`host` AND o.`number` = NEW.`number` LOCK IN SHARE MODE);
    END IF;
    IF other_key AND old_state <> 'X' THEN INSERT INTO `visit_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`)
        VALUES (CONVERT(JSON_ARRAY(OLD.`host`, OLD.`number`) USING utf8mb4) COLLATE utf8mb4_nopad_bin, NULL, NULL, at_us, old_state, 'X', event_name, old_owner);
    END IF;
    IF other_key AND new_state <> 'X' THEN INSERT INTO `visit_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`)
        VALUES (CONVERT(JSON_ARRAY(NEW.`host`, NEW.`number`) USING utf8mb4) COLLATE utf8mb4_nopad_bin, NULL, NULL, at_us, 'X', new_state, event_name, new_owner);
    END IF;
    IF NOT other_key AND (old_state <> 'X' OR new_state <> 'X') AND (NOT (BINARY OLD.`status` <=> BINARY NEW.`status`) OR event_name <> 'write') THEN INSERT INTO `visit_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`)
        VALUES (CONVERT(JSON_ARRAY(NEW.`host`, NEW.`number`) USING utf8mb4) COLLATE utf8mb4_nopad_bin, NULL, NULL, at_us, old_state, new_state, event_name, IF(old_state = 'T', old_owner, new_owner));
    END IF;
    IF old_state = 'T' AND (NOT (BINARY OLD.`status` <=> BINARY NEW.`status`) OR other_key) THEN DELETE FROM `visit_xq_owner`
        WHERE `visit_xq_owner`.`host` = OLD.`host` AND `visit_xq_owner`.`number` = OLD.`number`;
    END IF;
    IF old_state IN ('R', 'T', 'W') AND (new_state NOT IN ('R', 'T', 'W') OR other_key) AND EXISTS (SELECT 1 FROM `visit_xq_wait`) THEN UPDATE `visit_xq_wait`
        SET event = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'),
            target = IF(other_key, 'X', new_state)
        WHERE k0 = OLD.`host` AND k1 = OLD.`number` AND event IS NULL;
    END IF;
END;

-- install: the trigger visit_xq_delete
CREATE OR REPLACE TRIGGER `visit_xq_delete` AFTER DELETE
    ON `visit` FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END;
    DECLARE event_name VARCHAR(255) CHARACTER
        SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write');
    DECLARE at_us BIGINT DEFAULT ROUND(IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR) AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1) <> '', SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1) * 1e0, (@@timestamp * 1e0)) * 1000000);
    DECLARE old_owner VARCHAR(64) CHARACTER
        SET utf8mb4 COLLATE utf8mb4_nopad_bin;
    IF old_state <> 'X' THEN INSERT INTO `visit_xq_count` (tube, source, target, n)
        VALUES ('', old_state, 'X', 1);
    END IF;
    IF old_state = 'T' THEN
        SET old_owner = (SELECT o.owner FROM `visit_xq_owner` AS o WHERE o.`host` = OLD.`host` AND o.`number` = OLD.`number` LOCK IN SHARE MODE);
    END IF;
    IF old_state <> 'X' THEN INSERT INTO `visit_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`)
        VALUES (CONVERT(JSON_ARRAY(OLD.`host`, OLD.`number`) USING utf8mb4) COLLATE utf8mb4_nopad_bin, NULL, NULL, at_us, old_state, 'X', event_name, old_owner);
    END IF;
    IF old_state = 'T' THEN DELETE FROM `visit_xq_owner`
        WHERE `visit_xq_owner`.`host` = OLD.`host` AND `visit_xq_owner`.`number` = OLD.`number`;
    END IF;
    IF old_state IN ('R', 'T', 'W') AND EXISTS (SELECT 1 FROM `visit_xq_wait`) THEN UPDATE `visit_xq_wait`
        SET event = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'),
            target = 'X'
        WHERE k0 = OLD.`host` AND k1 = OLD.`number` AND event IS NULL;
    END IF;
END;

-- install: count what is there
INSERT INTO `visit_xq_count` (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END AS state, COUNT(*) AS n FROM `visit` WHERE (`status` IN ('R', 'T', 'W', 'B') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T', 'W', 'B')) GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM `visit_xq_count`);

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'visit';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('visit', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, NULL, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + 300.0), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- X put R: 2
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, NULL, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + 300.0), TIMESTAMP'1970-01-01 00:00:00')), (:f0_1, :f1_1, :f2_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, NULL, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + 300.0), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- X put R with ttl: 1
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, NULL, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- X put R with ttl: 2
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, NULL, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')), (:f0_1, :f1_1, :f2_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, NULL, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- X put W with delay: 1
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'), TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + 300.0), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- X put W with delay: 2
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'), TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + 300.0), TIMESTAMP'1970-01-01 00:00:00')), (:f0_1, :f1_1, :f2_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'), TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + 300.0), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- X put W with delay, ttl: 1
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'), TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- X put W with delay, ttl: 2
INSERT INTO `visit` (`host`, `number`, `note`, `status`, `runat`, `deadline`)
    VALUES (:f0_0, :f1_0, :f2_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'), TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')), (:f0_1, :f1_1, :f2_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'), TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00'))
    RETURNING `host`, `number`, `note`, `status`, `runat`, `deadline`;

-- R take T: the oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
INSERT INTO `visit_xq_owner` (`host`, `number`, owner)
    VALUES :rows
    ON DUPLICATE KEY UPDATE owner =
    VALUES(owner);
-- and then
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + 60.0), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R take T: the n oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
INSERT INTO `visit_xq_owner` (`host`, `number`, owner)
    VALUES :rows
    ON DUPLICATE KEY UPDATE owner =
    VALUES(owner);
-- and then
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + 60.0), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R take T with ttr: the oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
INSERT INTO `visit_xq_owner` (`host`, `number`, owner)
    VALUES :rows
    ON DUPLICATE KEY UPDATE owner =
    VALUES(owner);
-- and then
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttr), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R take T with ttr: the n oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
INSERT INTO `visit_xq_owner` (`host`, `number`, owner)
    VALUES :rows
    ON DUPLICATE KEY UPDATE owner =
    VALUES(owner);
-- and then
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttr), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T ack X: one, of this session
SELECT `visit`.`host`, `visit`.`number`, `visit`.`note`, `visit`.`status`, `visit`.`runat`, `visit`.`deadline`, `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `host`, `number` LIMIT :many;

-- T ack X: one, of this very take
SELECT `visit`.`host`, `visit`.`number`, `visit`.`note`, `visit`.`status`, `visit`.`runat`, `visit`.`deadline`, `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner = :token FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `host`, `number` LIMIT :many;

-- T ack X with update={'note': ...}: one
SELECT `visit`.`host`, `visit`.`number`, :f2, `visit`.`status`, `visit`.`runat`, `visit`.`deadline`, `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `host`, `number` LIMIT :many;

-- T release R: one, of this session
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release R: one, of this very take
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release R: n of a session
SELECT `visit`.`host`, `visit`.`number` FROM `visit` JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner >= :session AND o.owner < :session_end LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release R: n, whosesoever
UPDATE `visit`
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T');

-- T release R: n, whosesoever, returned
SELECT `visit`.`host`, `visit`.`number` FROM `visit`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release R with ttl: one, of this session
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release R with ttl: one, of this very take
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T snatch R: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T snatch R with ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T touch T with increment: one, of this session
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :increment), TIMESTAMP'1970-01-01 00:00:00'),
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `runat`) / 1e6), COALESCE(:now, (@@timestamp * 1e0))) + :increment), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T touch T with increment: one, of this very take
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :increment), TIMESTAMP'1970-01-01 00:00:00'),
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `runat`) / 1e6), COALESCE(:now, (@@timestamp * 1e0))) + :increment), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- W restart R: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'W') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- W restart R with ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'W') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R W B switch R: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R W B switch R with ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R W B switch W with delay: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R W B switch W with delay, ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R W B switch B: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R T W B kill X: one
SELECT `visit`.`host`, `visit`.`number`, `visit`.`note`, `visit`.`status`, `visit`.`runat`, `visit`.`deadline`, `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `host`, `number` LIMIT :many;

-- W delay R: n that are due by runat
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'W') AND `runat` <= TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00')
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T bury B: one, of this session
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T bury B: one, of this very take
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig R: the oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig R: the n oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig R: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig R with ttl: the oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig R with ttl: the n oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig R with ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL,
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- R W B lifetime X: n that are due by deadline
SELECT `visit`.`host`, `visit`.`number`, `visit`.`note`, `visit`.`status`, `visit`.`runat`, `visit`.`deadline`, `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_deadline`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') AND `deadline` <= TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00')
    ORDER BY `deadline` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `host`, `number` LIMIT :many;

-- T lifetime R: n that are due by deadline
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_deadline`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `deadline` <= TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00')
    ORDER BY `deadline` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T ttr R: n that are due by runat
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `runat` <= TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00')
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END,
        `runat` = NULL
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release W with delay: one, of this session
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release W with delay: one, of this very take
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release W with delay, ttl: one, of this session
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(o.owner, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T release W with delay, ttl: one, of this very take
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY) STRAIGHT_JOIN `visit_xq_owner` AS o
    ON `visit`.`host` = o.`host` AND `visit`.`number` = o.`number`
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND o.owner = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T snatch W with delay: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- T snatch W with delay, ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- W restart W with delay: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'W') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- W restart W with delay, ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'W') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig W with delay: the oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig W with delay: the n oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig W with delay: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL((TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) + :delay), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig W with delay, ttl: the oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig W with delay, ttl: the n oldest
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (`visit_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00'))
    ORDER BY `host`, `number` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- B dig W with delay, ttl: one
SELECT `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`visit`.`host` = :k0 AND CONVERT(`visit`.`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `visit`.`number` = :k1 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END,
        `runat` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay), TIMESTAMP'1970-01-01 00:00:00'),
        `deadline` = TIMESTAMPADD(SECOND, CEIL(COALESCE(:now, (@@timestamp * 1e0)) + :delay + :ttl), TIMESTAMP'1970-01-01 00:00:00')
    WHERE :chosen;
-- and returned are
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE :chosen;

-- kill in RTWB: n, whosesoever
DELETE `visit` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T', 'W', 'B')) AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL;

-- kill in RTWB: n, whosesoever, returned
SELECT `visit`.`host`, `visit`.`number`, `visit`.`note`, `visit`.`status`, `visit`.`runat`, `visit`.`deadline`, `visit`.`host`, `visit`.`number` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T', 'W', 'B')) FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `host`, `number` LIMIT :many;

-- before a kill in each of several states, of which events are counted
SELECT COUNT(*) FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T', 'W', 'B')) FOR UPDATE;

-- look at one task, and at who holds it
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline`, (SELECT o.owner FROM `visit_xq_owner` AS o WHERE o.`host` = `visit`.`host` AND o.`number` = `visit`.`number`) FROM `visit`
    WHERE (`host` = :k0 AND CONVERT(`host` USING utf8mb4) COLLATE utf8mb4_nopad_bin = :k0) AND `number` = :k1;

-- R T W B by_state
SELECT `host`, `number`, `note`, `status`, `runat`, `deadline` FROM `visit`
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R')
    ORDER BY `host`, `number` LIMIT :n;

-- taken
SELECT `host`, `number`, (SELECT o.owner FROM `visit_xq_owner` AS o WHERE o.`host` = `visit`.`host` AND o.`number` = `visit`.`number`) FROM `visit`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T');

-- stats
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `visit_xq_count`
    GROUP BY tube, source, target;

-- check, recount: what the table holds
SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END AS state, COUNT(*) AS n FROM `visit`
    WHERE (`status` IN ('R', 'T', 'W', 'B') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T', 'W', 'B'))
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `visit_xq_count`
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' ELSE 'X' END AS state, COUNT(*) AS n FROM `visit` WHERE (`status` IN ('R', 'T', 'W', 'B') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T', 'W', 'B')) GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO `visit_xq_count` (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- history
SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, dur_us FROM (SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, CASE WHEN source <> 'X' THEN at_us - LAG(at_us) OVER (PARTITION BY `key` ORDER BY id) END AS dur_us FROM `visit_xq_history`) AS noted
    ORDER BY id;

-- history of a task, from one moment to another
SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, dur_us FROM (SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, CASE WHEN source <> 'X' THEN at_us - LAG(at_us) OVER (PARTITION BY `key` ORDER BY id) END AS dur_us FROM `visit_xq_history` WHERE `key` = CONVERT(JSON_ARRAY(:k0, :k1) USING utf8mb4) COLLATE utf8mb4_nopad_bin) AS noted
    WHERE at_us >= :since AND at_us < :until
    ORDER BY id;

-- reconfigure: tell the history of tasks in R that move to B
INSERT INTO `visit_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`)
    SELECT CONVERT(JSON_ARRAY(`visit`.`host`, `visit`.`number`) USING utf8mb4) COLLATE utf8mb4_nopad_bin, NULL, NULL, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED), 'R', 'B', :event, NULL FROM `visit`
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R');

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
    WHERE queue = 'visit' AND state <> 'running' AND chunk > 0 AND updated_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) - :kept_us;

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
    VALUES (:uuid, '', COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program), (:uuid, 'visit', COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program)
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
    VALUES ('visit', :tube, :whole)
    ON DUPLICATE KEY UPDATE queue = queue;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'visit' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('visit', :name, :spec, :task, :next_us)
    ON DUPLICATE KEY UPDATE queue = queue;

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
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE queue = 'visit' AND name = :name AND next_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FOR UPDATE SKIP LOCKED;

-- wait: begin
INSERT INTO `visit_xq_wait` (k0, k1, waiter, session, since)
    VALUES (:k0, :k1, :waiter, :uuid, COALESCE(:now, (@@timestamp * 1e0)));

-- wait: how tasks ended
SELECT waiter, event, target FROM `visit_xq_wait`
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM `visit_xq_wait`
    WHERE k0 = :k0 AND k1 = :k1 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM `visit_xq_wait`
    WHERE session = :uuid;

-- waiting
SELECT k0, k1, session, since FROM `visit_xq_wait`
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1 FROM `visit` FORCE INDEX (`visit_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') AND (`deadline` IS NULL OR `deadline` > TIMESTAMPADD(MICROSECOND, (COALESCE(:now, (@@timestamp * 1e0))) * 1000000, TIMESTAMP'1970-01-01 00:00:00')) LIMIT 1;

-- when something falls due
SELECT MIN(at) - COALESCE(:now, (@@timestamp * 1e0)) FROM (SELECT (SELECT (TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) FROM `visit` FORCE INDEX (`visit_xq_deadline`) WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `deadline` IS NOT NULL ORDER BY `deadline` LIMIT 1) AS at UNION ALL SELECT (SELECT (TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `runat`) / 1e6) FROM `visit` FORCE INDEX (`visit_xq_runat`) WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `runat` IS NOT NULL ORDER BY `runat` LIMIT 1) AS at UNION ALL SELECT (SELECT (TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `runat`) / 1e6) FROM `visit` FORCE INDEX (`visit_xq_runat`) WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'W') AND `runat` IS NOT NULL ORDER BY `runat` LIMIT 1) AS at UNION ALL SELECT (SELECT (TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) FROM `visit` FORCE INDEX (`visit_xq_deadline`) WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') AND `deadline` IS NOT NULL ORDER BY `deadline` LIMIT 1) AS at UNION ALL SELECT (SELECT (TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) FROM `visit` FORCE INDEX (`visit_xq_deadline`) WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'W') AND `deadline` IS NOT NULL ORDER BY `deadline` LIMIT 1) AS at UNION ALL SELECT (SELECT (TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `deadline`) / 1e6) FROM `visit` FORCE INDEX (`visit_xq_deadline`) WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'B') AND `deadline` IS NOT NULL ORDER BY `deadline` LIMIT 1) AS at) AS times;

-- what tasks there are, before another definition is installed
SELECT CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin, COUNT(*) FROM `visit`
    GROUP BY 1;
