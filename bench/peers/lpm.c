/*
 * DPDK's IPv4 longest-prefix match on the tables that wirerate dumped: rte_lpm, one by one and four at a
 * time (its vector look-up), and rte_fib (DIR24_8), scalar and by AVX-512.
 *
 *     lpm EAL_ARGUMENTS -- DIR [no-lpm]
 *
 * rte_lpm takes minutes to build, as it searches its rules from end to end for each that is added; `no-lpm`
 * leaves it out. Next hops are 24 bits in rte_lpm; rte_fib gets 2 bytes, the fewest that hold 256 of them.
 */
#include <rte_eal.h>
#include <rte_memory.h>
#include <rte_fib.h>
#include <rte_lpm.h>

#include "peer.h"

static struct rte_lpm *lpm;
static struct rte_fib *fib;
static uint32_t *destinations;
static size_t count;

static inline void lpm_bulk(const uint32_t *batch, uint32_t *hops, uint64_t *wide)
{
	(void)wide;
	rte_lpm_lookup_bulk(lpm, batch, hops, BATCH);
}

static inline void lpm_x4(const uint32_t *batch, uint32_t *hops, uint64_t *wide)
{
	(void)wide;
	for (int i = 0; i < BATCH; i += 4)
		rte_lpm_lookupx4(lpm, _mm_loadu_si128((const __m128i *)(batch + i)), hops + i, 0);
}

static inline void fib_bulk(const uint32_t *batch, uint32_t *hops, uint64_t *wide)
{
	(void)hops;
	rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)batch, wide, BATCH);
}

typedef void look_up(const uint32_t *, uint32_t *, uint64_t *);

static inline __attribute__((always_inline)) double rate(look_up *look)
{
	uint32_t hops[BATCH];
	uint64_t wide[BATCH];
	size_t done = 0;
	double begin = seconds(), now;
	do {
		for (size_t i = 0; i + BATCH <= count; i += BATCH) {
			look(destinations + i, hops, wide);
			keep(hops);
			keep(wide);
		}
		done += count / BATCH * BATCH;
		now = seconds();
	} while (now - begin < ROUND);
	return (double)done / (now - begin) / 1e6;
}

/* All next hops added up: the same from everybody who looks the same up in the same table. */
static inline __attribute__((always_inline)) uint64_t sum(look_up *look, int is_wide)
{
	uint32_t hops[BATCH];
	uint64_t wide[BATCH], total = 0;
	for (size_t i = 0; i + BATCH <= count; i += BATCH) {
		look(destinations + i, hops, wide);
		for (int j = 0; j < BATCH; j++)
			total += is_wide ? wide[j] : (hops[j] & 0xffffff);
	}
	return total;
}

static double build_lpm(const struct prefix4 *prefixes, size_t routes)
{
	struct rte_lpm_config config = { .max_rules = (uint32_t)routes, .number_tbl8s = 1 << 16 };
	double begin = seconds();
	lpm = rte_lpm_create("peer", SOCKET_ID_ANY, &config);
	if (!lpm)
		die("no memory for rte_lpm");
	for (size_t i = 0; i < routes; i++)
		if (rte_lpm_add(lpm, prefixes[i].address, (uint8_t)prefixes[i].length, prefixes[i].value))
			die("rte_lpm refuses a route");
	return seconds() - begin;
}

static double build_fib(const struct prefix4 *prefixes, size_t routes)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = 0,
		.max_routes = (int)routes,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = 32767 },
	};
	double begin = seconds();
	fib = rte_fib_create("peer", SOCKET_ID_ANY, &config);
	if (!fib)
		die("no memory for rte_fib");
	for (size_t i = 0; i < routes; i++)
		if (rte_fib_add(fib, prefixes[i].address, (uint8_t)prefixes[i].length, prefixes[i].value))
			die("rte_fib refuses a route");
	return seconds() - begin;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 2)
		die("usage: lpm EAL_ARGUMENTS -- DIR [no-lpm]");
	const char *directory = argv[used + 1];
	int has_lpm = argc - used < 3 || strcmp(argv[used + 2], "no-lpm") != 0;
	size_t routes;
	struct prefix4 *prefixes = load(directory, "v4-prefixes.bin", sizeof *prefixes, &routes);
	destinations = load(directory, "v4-destinations.bin", sizeof *destinations, &count);

	double fib_build = build_fib(prefixes, routes);
	printf("{\"routes\": %zu, \"fib_build_s\": %.4f", routes, fib_build);
	int has_vector = rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512) == 0;
	if (has_vector)
		printf(", \"fib_vector_sum\": %lu", sum(fib_bulk, 1));
	rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	printf(", \"fib_scalar_sum\": %lu", sum(fib_bulk, 1));
	if (has_lpm) {
		double lpm_build = build_lpm(prefixes, routes);
		printf(", \"lpm_build_s\": %.4f, \"lpm_bulk_sum\": %lu, \"lpm_x4_sum\": %lu", lpm_build,
		       sum(lpm_bulk, 0), sum(lpm_x4, 0));
	}
	printf("}\n");
	while (next_round()) {
		rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
		printf("{\"fib_scalar\": %.2f", rate(fib_bulk));
		if (has_vector) {
			rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512);
			printf(", \"fib_vector\": %.2f", rate(fib_bulk));
		}
		if (has_lpm)
			printf(", \"lpm_bulk\": %.2f, \"lpm_x4\": %.2f", rate(lpm_bulk), rate(lpm_x4));
		printf("}\n");
	}
	rte_eal_cleanup();
	return 0;
}
