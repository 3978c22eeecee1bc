/*
 * DPDK's rte_acl on the rules and the headers that `wirerate bench classify` uses.
 *
 *     acl EAL_ARGUMENTS -- RULES TRACE [MAX_SIZE]
 *
 * RULES is a ClassBench filter set; a further column, a number, is the position that its line stands for, the
 * number of the line from 0 where it is missing. TRACE has a header a line: source, destination, source port,
 * destination port, protocol, and the 16 bits that the flags column of the rules looks at, decimal, as
 * `wirerate generate trace` writes them. MAX_SIZE is rte_acl's own build parameter, in bytes; 0, which is also
 * what it is without one, lets it make as many tries as it likes, a large one makes fewer and larger ones.
 *
 * The first line of JSON says how it was built, what it takes, and a checksum of all answers. Each line on
 * standard input is then answered with millions of look-ups a second. It names the implementation (`avx2`, which
 * DPDK takes by default where it can, `avx512x16`, `avx512x32` or `scalar`; nothing is the default) and how many
 * seconds to measure each of the two sizes of batches.
 */
#include <ctype.h>
#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#include "peer.h"

enum { PROTOCOL, SOURCE, DESTINATION, SPORT, DPORT, FLAGS, FIELDS };

/* A header as rte_acl reads it: in the order of the wire. The first field has one byte, all else comes in fours. */
struct key {
	uint8_t protocol, none[3];
	uint32_t source, destination;
	uint16_t sport, dport;
	uint32_t flags;
};

#define FIELD(at, kind, bytes, group, member)                                                             \
	[at] = { .type = RTE_ACL_FIELD_TYPE_##kind, .size = (bytes), .field_index = (at),                  \
		 .input_index = (group), .offset = offsetof(struct key, member) }

static const struct rte_acl_field_def fields[FIELDS] = {
	FIELD(PROTOCOL, BITMASK, 1, 0, protocol),
	FIELD(SOURCE, MASK, 4, 1, source),
	FIELD(DESTINATION, MASK, 4, 2, destination),
	FIELD(SPORT, RANGE, 2, 3, sport),
	FIELD(DPORT, RANGE, 2, 3, dport),
	FIELD(FLAGS, BITMASK, 4, 4, flags),
};

RTE_ACL_RULE_DEF(rule, FIELDS);

static struct rte_acl_ctx *acl;
static const uint8_t **headers;
static size_t count;

/* The largest batch that is tried. */
#define LARGE 1024

static FILE *open_text(const char *path)
{
	FILE *file = fopen(path, "r");
	if (!file) {
		perror(path);
		exit(1);
	}
	return file;
}

static uint32_t address(unsigned a, unsigned b, unsigned c, unsigned d)
{
	return a << 24 | b << 16 | c << 8 | d;
}

static int read_rule(const char *line, uint32_t number, struct rule *rule)
{
	unsigned s[5], d[5], sport[2], dport[2], protocol[2], flags[2] = { 0, 0 }, position = number;
	int read = sscanf(line, "@%u.%u.%u.%u/%u %u.%u.%u.%u/%u %u : %u %u : %u %x/%x %x/%x %u", s, s + 1, s + 2,
			  s + 3, s + 4, d, d + 1, d + 2, d + 3, d + 4, sport, sport + 1, dport, dport + 1, protocol,
			  protocol + 1, flags, flags + 1, &position);
	if (read != 16 && read < 18)
		return 0;
	memset(rule, 0, sizeof *rule);
	rule->data.category_mask = 1;
	rule->data.priority = (int32_t)(RTE_ACL_MAX_PRIORITY - position);
	rule->data.userdata = position + 1;
	rule->field[PROTOCOL].value.u8 = (uint8_t)protocol[0];
	rule->field[PROTOCOL].mask_range.u8 = (uint8_t)protocol[1];
	rule->field[SOURCE].value.u32 = address(s[0], s[1], s[2], s[3]);
	rule->field[SOURCE].mask_range.u32 = s[4];
	rule->field[DESTINATION].value.u32 = address(d[0], d[1], d[2], d[3]);
	rule->field[DESTINATION].mask_range.u32 = d[4];
	rule->field[SPORT].value.u16 = (uint16_t)sport[0];
	rule->field[SPORT].mask_range.u16 = (uint16_t)sport[1];
	rule->field[DPORT].value.u16 = (uint16_t)dport[0];
	rule->field[DPORT].mask_range.u16 = (uint16_t)dport[1];
	rule->field[FLAGS].value.u32 = flags[0] & flags[1];
	rule->field[FLAGS].mask_range.u32 = flags[1];
	return 1;
}

static struct rule *read_rules(const char *path, uint32_t *many)
{
	FILE *file = open_text(path);
	size_t room = 1024;
	struct rule *rules = malloc(room * sizeof *rules);
	char line[512];
	*many = 0;
	while (rules && fgets(line, sizeof line, file)) {
		if (line[0] == '#' || isspace((unsigned char)line[0]))
			continue;
		if (*many == room)
			rules = realloc(rules, (room *= 2) * sizeof *rules);
		if (!rules || !read_rule(line, *many, rules + *many))
			die("a rule cannot be read");
		++*many;
	}
	fclose(file);
	return rules;
}

static void read_trace(const char *path)
{
	FILE *file = open_text(path);
	size_t room = 1 << 16;
	struct key *keys = malloc(room * sizeof *keys);
	char line[512];
	while (keys && fgets(line, sizeof line, file)) {
		unsigned source, destination, sport, dport, protocol, flags;
		if (sscanf(line, "%u %u %u %u %u %u", &source, &destination, &sport, &dport, &protocol, &flags) != 6)
			die("a header cannot be read");
		if (count == room)
			keys = realloc(keys, (room *= 2) * sizeof *keys);
		if (!keys)
			break;
		keys[count++] = (struct key){
			.protocol = (uint8_t)protocol,
			.source = rte_cpu_to_be_32(source),
			.destination = rte_cpu_to_be_32(destination),
			.sport = rte_cpu_to_be_16((uint16_t)sport),
			.dport = rte_cpu_to_be_16((uint16_t)dport),
			.flags = rte_cpu_to_be_32(flags),
		};
	}
	fclose(file);
	headers = malloc((count + 1) * sizeof *headers);
	if (!keys || !headers)
		die("no memory for the headers");
	for (size_t i = 0; i < count; i++)
		headers[i] = (const uint8_t *)&keys[i];
}

static size_t allocated(void)
{
	struct rte_malloc_socket_stats stats;
	size_t total = 0;
	for (int socket = 0; socket < RTE_MAX_NUMA_NODES; socket++)
		if (!rte_malloc_get_socket_stats(socket, &stats))
			total += stats.heap_allocsz_bytes;
	return total;
}

/* Millions of look-ups a second, `batch` at a time. */
static double rate(uint32_t batch, double time)
{
	uint32_t results[LARGE];
	size_t done = 0;
	double begin = seconds(), now;
	do {
		/* A thousandth of a second between two looks at the clock, whatever the trace's length. */
		for (size_t i = 0, part = 0; part < 16384 && i < count; i += batch, part += batch) {
			static size_t at;
			uint32_t many = (uint32_t)(count - at < batch ? count - at : batch);
			rte_acl_classify(acl, headers + at, results, many, 1);
			keep(results);
			done += many;
			at = at + many < count ? at + many : 0;
		}
		now = seconds();
	} while (now - begin < time);
	return (double)done / (now - begin) / 1e6;
}

static void build(const struct rule *rules, uint32_t many, size_t max_size)
{
	struct rte_acl_param param = {
		.name = "peer",
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(FIELDS),
		.max_rule_num = many,
	};
	struct rte_acl_config config = { .num_categories = 1, .num_fields = FIELDS, .max_size = max_size };
	memcpy(config.defs, fields, sizeof fields);
	acl = rte_acl_create(&param);
	if (!acl)
		die("no memory for rte_acl");
	double begin = seconds();
	if (rte_acl_add_rules(acl, (const struct rte_acl_rule *)rules, many))
		die("rte_acl refuses a rule");
	size_t before = allocated();
	int error = rte_acl_build(acl, &config);
	if (error) {
		fprintf(stderr, "peer: rte_acl cannot be built: %s\n", strerror(-error));
		exit(1);
	}
	printf("{\"rules\": %u, \"max_size\": %zu, \"build_seconds\": %.4f, \"memory_bytes\": %zu", many, max_size,
	       seconds() - begin, allocated() - before);
}

/* Positions that were found, and FNV-1a over them, by 32 bits: the same from everybody who finds the same. */
static void check(void)
{
	uint32_t results[BATCH];
	uint64_t hash = 0xcbf29ce484222325u;
	size_t found = 0;
	for (size_t i = 0; i < count; i += BATCH) {
		uint32_t many = (uint32_t)(count - i < BATCH ? count - i : BATCH);
		rte_acl_classify(acl, headers + i, results, many, 1);
		for (uint32_t j = 0; j < many; j++) {
			found += results[j] != 0;
			hash = (hash ^ (uint32_t)(results[j] - 1)) * 0x100000001b3u;
		}
	}
	printf(", \"matches\": %zu, \"checksum\": %lu}\n", found, hash);
}

/* Takes the implementation of that name; 0 where it cannot be had here. */
static int take(const char *name)
{
	static const struct {
		const char *name;
		enum rte_acl_classify_alg alg;
	} known[] = {
		{ "scalar", RTE_ACL_CLASSIFY_SCALAR },
		{ "avx2", RTE_ACL_CLASSIFY_AVX2 },
		{ "avx512x16", RTE_ACL_CLASSIFY_AVX512X16 },
		{ "avx512x32", RTE_ACL_CLASSIFY_AVX512X32 },
	};
	for (size_t i = 0; i < RTE_DIM(known); i++)
		if (strcmp(name, known[i].name) == 0)
			return rte_acl_set_ctx_classify(acl, known[i].alg) == 0;
	return 0;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 3)
		die("usage: acl EAL_ARGUMENTS -- RULES TRACE [MAX_SIZE]");
	uint32_t many;
	struct rule *rules = read_rules(argv[used + 1], &many);
	if (!rules || many == 0)
		die("no rules");
	read_trace(argv[used + 2]);
	if (count == 0)
		die("no headers");
	build(rules, many, argc - used > 3 ? strtoull(argv[used + 3], NULL, 0) : 0);
	free(rules);
	check();
	char line[64];
	while (fflush(stdout), fgets(line, sizeof line, stdin)) {
		char name[32] = "avx2";
		double time = ROUND;
		sscanf(line, "%31s %lf", name, &time);
		if (!take(name)) {
			printf("{\"missing\": \"%s\"}\n", name);
			continue;
		}
		double small = rate(BATCH, time), large = rate(LARGE, time);
		printf("{\"mlookups_64\": %.3f, \"mlookups_1024\": %.3f}\n", small, large);
	}
	rte_acl_free(acl);
	rte_eal_cleanup();
	return 0;
}
