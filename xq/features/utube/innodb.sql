The tables of group heads and of dirty ones, and how triggers keep them.

--: heads
-- UNION ALL with a row of NULL: its columns may be NULL, and are else as the table's.
CREATE TABLE IF NOT EXISTS {name}
    (utube {digest} DEFAULT '' PRIMARY KEY, taken BIGINT NOT NULL DEFAULT 0,
    most BIGINT NOT NULL DEFAULT 0, n BIGINT NOT NULL DEFAULT 0, version BIGINT NOT NULL DEFAULT 0
--? fair
    , served BIGINT NOT NULL DEFAULT 0
--? end
    , CHECK (taken <= most)){engine}
    AS SELECT {ordered_as_columns} FROM {table} UNION ALL SELECT {nulls} LIMIT 0;
{open};

--: dirty_groups
CREATE TABLE IF NOT EXISTS {name} (id BIGINT AUTO_INCREMENT PRIMARY KEY, utube {digest}, writer BIGINT){engine};

--: changed
IF ({when}) THEN
    BEGIN
        -- By SELECT INTO, which locks nothing. A head that is there has its limit.
        DECLARE xq_limit BIGINT;
        IF ({taken} <> 0) THEN
            SELECT most INTO xq_limit FROM {heads} WHERE utube = {utube};
            IF (xq_limit IS NULL) THEN
                SELECT {limit} INTO xq_limit;
            END IF;
--? fair
            INSERT INTO {heads} (utube, taken, n, most, served)
                VALUES ({utube}, {taken}, xq_limit, xq_limit, IF({taken} > 0, {now_served}, 0)){adding};
--? not fair
            INSERT INTO {heads} (utube, taken, n, most) VALUES ({utube}, {taken}, xq_limit, xq_limit){adding};
--? end
        END IF;
        -- The head of a full group needs no first task.
        IF ({taken} > 0) THEN
            SELECT taken < most INTO xq_limit FROM {heads} WHERE utube = {utube};
        END IF;
        IF ({taken} <= 0 OR xq_limit) THEN
            INSERT INTO {dirty_groups} (utube, writer) VALUES ({utube}, {me});
        END IF;
    END;
END IF;
