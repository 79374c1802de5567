-- Functions for recipe expressions, in addition to those of DuckDB: all are scalar, and none
-- returns more text than it receives.
CREATE MACRO wall(t) AS CASE WHEN zone() = 'UTC' THEN epoch(t) ELSE epoch(timezone(zone(), t)) - CASE WHEN timezone(zone(), to_timestamp(epoch(timezone(zone(), t)) - 3600)) = t THEN 3600 ELSE 0 END END;
CREATE MACRO num(x) AS try_cast(x AS DOUBLE);
CREATE MACRO whole(x) AS coalesce(nullif(regexp_extract(x, '^(\d+)\.0+$', 1), ''), x);
CREATE MACRO percent(x) AS num(x) / 100;
CREATE MACRO without(x, pattern) AS regexp_replace(x, pattern, '', 'g');
CREATE MACRO decimal_comma(x) AS try_cast(translate(x, ',', '.') AS DOUBLE);
-- A written time as Unix seconds; an offset in the text overrides the zone of the recipe.
CREATE MACRO iso(x) AS CASE WHEN x LIKE '____-__-_____:__:__' AND NOT suffix(x, 'Z') AND NOT suffix(x, 'z') THEN wall(try_cast(x AS TIMESTAMP)) WHEN regexp_full_match(x, '\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?') THEN wall(try_cast(x AS TIMESTAMP)) WHEN x IS NULL OR lower(x) IN ('now', 'today', 'yesterday', 'tomorrow', 'infinity', '-infinity', 'epoch') THEN NULL WHEN regexp_matches(x, '[T ]\d\d(:?\d\d){0,2}([.,]\d+)?\s*([zZ]|UTC|GMT|[+-]\d\d(:?\d\d)?)$') THEN epoch(try_cast(x AS TIMESTAMPTZ)) ELSE wall(try_cast(x AS TIMESTAMP)) END;
CREATE MACRO dated(x, f) AS wall(try_strptime(x, f));
-- Times that occur twice in a clock change: the later one if the earlier is before y.
CREATE MACRO notbefore(t, y) AS CASE WHEN zone() <> 'UTC' AND t < y AND t + 3600 >= y AND timezone(zone(), to_timestamp(t + 3600)) = timezone(zone(), to_timestamp(t)) THEN t + 3600 ELSE t END;
CREATE MACRO unix(x) AS CASE WHEN num(x) > 0 THEN num(x) END;
-- [D-]HH:MM:SS, MM:SS, "1 day, 3:04:05", "1h 2m 5s", "2.5h", "500ms" or plain seconds.
CREATE MACRO length_s(x) AS CASE
  WHEN regexp_full_match(x, '-?\d+(\.\d+)?([eE][+-]?\d+)?') THEN try_cast(x AS DOUBLE)
  WHEN regexp_full_match(x, '(\d+(-|\s*days?,?\s*))?(\d+:)?\d+:\d+(\.\d+)?') THEN
    coalesce(try_cast(regexp_extract(x, '^(\d+)(?:-|\s*day)', 1) AS DOUBLE), 0) * 86400
    + coalesce(try_cast(regexp_extract(x, '(\d+):\d+:\d+', 1) AS DOUBLE), 0) * 3600
    + try_cast(regexp_extract(x, '(\d+):\d+(?:\.\d+)?$', 1) AS DOUBLE) * 60
    + try_cast(regexp_extract(x, '(\d+(?:\.\d+)?)$', 1) AS DOUBLE)
  WHEN regexp_full_match(x, '(?i)(\d+(\.\d+)?\s*(d|days?|h|hours?|hrs?|m|mins?|minutes?|s|secs?|seconds?|ms)\s*)+') THEN
    coalesce(try_cast(regexp_extract(x, '(?i)(\d+(?:\.\d+)?)\s*d', 1) AS DOUBLE), 0) * 86400
    + coalesce(try_cast(regexp_extract(x, '(?i)(\d+(?:\.\d+)?)\s*h', 1) AS DOUBLE), 0) * 3600
    + coalesce(try_cast(regexp_extract(x, '(?i)(\d+(?:\.\d+)?)\s*m(?:ins?|inutes?)?(?:\s|\d|$)', 1) AS DOUBLE), 0) * 60
    + coalesce(try_cast(regexp_extract(x, '(?i)(\d+(?:\.\d+)?)\s*s', 1) AS DOUBLE), 0)
    + coalesce(try_cast(regexp_extract(x, '(?i)(\d+(?:\.\d+)?)\s*ms', 1) AS DOUBLE), 0) / 1000
  END;
-- The value of a key in "queue=gpu ctime=1772442000 Resource_List.ngpus=2"; s separates the pairs.
CREATE MACRO kv(x, k) AS nullif(regexp_extract(x, '(?:^|\s)' || k || '=(\S*)', 1), ''), (x, k, s) AS nullif(trim(substr(list_first(list_filter(list_transform(string_split(x, s), lambda p: trim(p)), lambda p: starts_with(p, k || '='))), length(k) + 2)), '');
CREATE MACRO minutes(x) AS CASE WHEN num(x) < 4294967294 AND num(x) > 0 THEN num(x) * 60 END;
-- Trackable resources of Slurm: the untyped total, else the sum of the types.
CREATE MACRO tres(x, k) AS try_cast(regexp_extract(x, '(?:^|,)' || k || '=(\d+(?:\.\d+)?)', 1) AS DOUBLE);
CREATE MACRO tres_gpus(x) AS coalesce(tres(x, 'gres/gpu'), list_sum(list_transform(regexp_extract_all(x, '(?:^|,)gres/gpu:[^=,]+=(\d+)', 1), lambda v: v::DOUBLE)));
-- The GPU type with the largest count.
CREATE MACRO tres_type(x) AS lower(list_extract(regexp_extract_all(x, '(?:^|,)gres/gpu:([^=,]+)=\d', 1), CASE WHEN len(regexp_extract_all(x, '(?:^|,)gres/gpu:([^=,]+)=\d', 1)) = 1 THEN 1 ELSE list_position(list_transform(regexp_extract_all(x, '(?:^|,)gres/gpu:[^=,]+=(\d+)', 1), lambda v: v::DOUBLE), list_max(list_transform(regexp_extract_all(x, '(?:^|,)gres/gpu:[^=,]+=(\d+)', 1), lambda v: v::DOUBLE))) END));
CREATE MACRO gres_gpus(x) AS coalesce(list_sum(list_transform(regexp_extract_all(regexp_replace(x, '\([^)]*\)', '', 'g'), '(?:^|,)(?:gres[:/])?gpu(?::[^:,=]+)?[:=](\d+)', 1), lambda v: v::DOUBLE)), CASE WHEN regexp_matches(x, '(^|,)(gres[:/])?gpu(:[A-Za-z][^:,]*)?(,|$)') THEN 1.0 END);
-- Any spelling of a number of GPUs: 4, gpu:4, gpu:a100:4, gres/gpu:a100=4, 4xA100, A100:4.
CREATE MACRO gpus(x) AS coalesce(try_cast(x AS DOUBLE), tres_gpus(x), gres_gpus(x), try_cast(nullif(regexp_extract(x, '(?i)^(\d+)\s*[x×*]\s*(?:nvidia[-_ .]|tesla[-_ ]|amd[-_ ])*(?:[abhlptvk]\d{1,4}|rtx|gtx|mi\d{2,3}|gh200|gb200|gaudi|gpu)', 1), '') AS DOUBLE), try_cast(nullif(regexp_extract(x, '(?i)^(?:nvidia[-_ .]|tesla[-_ ]|amd[-_ ])*(?:[abhlptvk]\d{1,4}|rtx|gtx|mi\d{2,3}|gh200|gb200|gaudi)[\w-]*\s*[:=]\s*(\d+)$', 1), '') AS DOUBLE), try_cast(nullif(regexp_extract(x, '(?i)(?:nvidia|amd)\.com/gpu"?\s*[:=]\s*"?(\d+)', 1), '') AS DOUBLE));
CREATE MACRO mem_gb(x) AS try_cast(regexp_extract(x, '(\d+(?:\.\d+)?)', 1) AS DOUBLE) * CASE upper(regexp_extract(x, '\d([KMGTP])', 1)) WHEN 'K' THEN 1/1048576.0 WHEN 'M' THEN 1/1024.0 WHEN 'T' THEN 1024.0 WHEN 'P' THEN 1048576.0 WHEN 'G' THEN 1.0 ELSE 1/1024.0 END;
CREATE MACRO tres_mem_gb(x) AS mem_gb(regexp_extract(x, '(?:^|,)mem=(\d+(?:\.\d+)?[KMGTP]?)', 1));
-- ReqMem of Slurm: 4000Mn per node, 3000Mc (or the top bit) per core, 16G for the job; 0 is not given.
CREATE MACRO reqmem_gb(x, n, c) AS CASE WHEN regexp_full_match(x, '\d+(\.\d+)?[KMGTP]?[nc]?') THEN nullif((mem_gb(x) * 1024) % 2147483648.0, 0) / 1024 * CASE WHEN x LIKE '%c' OR mem_gb(x) >= 2097152 THEN c WHEN x LIKE '%n' THEN n ELSE 1 END END;
-- Quantities of Kubernetes: 7910m, 1056270220Ki, 64Gi.
CREATE MACRO quantity(x) AS coalesce(try_cast(x AS DOUBLE), try_cast(regexp_extract(x, '^([\d.]+)', 1) AS DOUBLE) * CASE regexp_extract(x, '([A-Za-z]+)$', 1) WHEN 'm' THEN 0.001 WHEN 'Ki' THEN 1024 WHEN 'Mi' THEN 1048576 WHEN 'Gi' THEN 1073741824 WHEN 'Ti' THEN 1099511627776 WHEN 'k' THEN 1e3 WHEN 'M' THEN 1e6 WHEN 'G' THEN 1e9 WHEN 'T' THEN 1e12 END);
-- JSON: the text at a path, all texts, all items; the sum of a list of numbers.
CREATE MACRO text(j, p) AS CASE WHEN lower(trim(json_extract_string(j, p))) IN ('', 'none', 'null', 'unknown') THEN NULL ELSE trim(json_extract_string(j, p)) END;
CREATE MACRO texts(j, p) AS json_extract_string(j, p);
CREATE MACRO each(j, p) AS coalesce(json_extract(j, p), []);
CREATE MACRO total(l) AS list_sum(l);
-- Numbers of slurmrestd: plain, or {set, infinite, number}.
CREATE MACRO slurm_number(j, p) AS CASE WHEN json_type(j, p) = 'OBJECT' THEN CASE WHEN json_extract_string(j, p || '.set') = 'true' AND json_extract_string(j, p || '.infinite') <> 'true' THEN num(json_extract_string(j, p || '.number')) END WHEN num(json_extract_string(j, p)) < 4294967294 THEN num(json_extract_string(j, p)) END;
-- The last time a condition of a Kubernetes object became true, and its reason.
CREATE MACRO condition_at(j, k) AS list_max(list_transform(list_filter(coalesce(json_extract(j, '$.status.conditions[*]'), []), lambda c: json_extract_string(c, '$.type') = k AND json_extract_string(c, '$.status') = 'True'), lambda c: iso(json_extract_string(c, '$.lastTransitionTime'))));
CREATE MACRO condition_reason(j, k) AS list_first(list_transform(list_filter(coalesce(json_extract(j, '$.status.conditions[*]'), []), lambda c: json_extract_string(c, '$.type') = k), lambda c: json_extract_string(c, '$.reason')));
-- GPUs of a container and of a pod: GPU limits equal requests; init containers run before the
-- others, one by one.
CREATE MACRO gpu_ask(c) AS greatest(coalesce(quantity(json_extract_string(c, '$.resources.limits."nvidia.com/gpu"')), 0), coalesce(quantity(json_extract_string(c, '$.resources.requests."nvidia.com/gpu"')), 0), coalesce(quantity(json_extract_string(c, '$.resources.limits."amd.com/gpu"')), 0), coalesce(quantity(json_extract_string(c, '$.resources.requests."amd.com/gpu"')), 0));
CREATE MACRO template_gpus(t) AS greatest(coalesce(list_sum(list_transform(json_extract(t, '$.spec.containers[*]'), lambda c: gpu_ask(c))), 0), coalesce(list_max(list_transform(json_extract(t, '$.spec.initContainers[*]'), lambda c: gpu_ask(c))), 0));
