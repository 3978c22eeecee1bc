/*
 * DPDK's IPv6 longest-prefix match on the tables that wirerate dumped: rte_fib6 (TRIE), scalar and by
 * AVX-512.
 *
 *     fib6 EAL_ARGUMENTS -- DIR
 *
 * Next hops are 4 bytes: with 2, there can be only 32,767 of the tables past the first 24 bits, and a table
 * like the Internet's needs more.
 */
#include <rte_eal.h>
#include <rte_memory.h>
#include <rte_fib6.h>

#include "peer.h"

static struct rte_fib6 *fib;
static uint8_t (*destinations)[16];
static size_t count;

static double rate(void)
{
	uint64_t hops[BATCH];
	size_t done = 0;
	double begin = seconds(), now;
	do {
		for (size_t i = 0; i + BATCH <= count; i += BATCH) {
			rte_fib6_lookup_bulk(fib, destinations + i, hops, BATCH);
			keep(hops);
		}
		done += count / BATCH * BATCH;
		now = seconds();
	} while (now - begin < ROUND);
	return (double)done / (now - begin) / 1e6;
}

/* All next hops added up: the same from everybody who looks the same up in the same table. */
static uint64_t sum(void)
{
	uint64_t hops[BATCH], total = 0;
	for (size_t i = 0; i + BATCH <= count; i += BATCH) {
		rte_fib6_lookup_bulk(fib, destinations + i, hops, BATCH);
		for (int j = 0; j < BATCH; j++)
			total += hops[j];
	}
	return total;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 2)
		die("usage: fib6 EAL_ARGUMENTS -- DIR");
	const char *directory = argv[used + 1];
	size_t routes;
	struct prefix6 *prefixes = load(directory, "v6-prefixes.bin", sizeof *prefixes, &routes);
	destinations = load(directory, "v6-destinations.bin", sizeof *destinations, &count);
	struct rte_fib6_conf config = {
		.type = RTE_FIB6_TRIE,
		.default_nh = 0,
		.max_routes = (int)routes,
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = 1 << 19 },
	};
	double begin = seconds();
	fib = rte_fib6_create("peer", SOCKET_ID_ANY, &config);
	if (!fib)
		die("no memory for rte_fib6");
	for (size_t i = 0; i < routes; i++)
		if (rte_fib6_add(fib, prefixes[i].address, (uint8_t)prefixes[i].length, prefixes[i].value))
			die("rte_fib6 refuses a route");
	printf("{\"routes\": %zu, \"build_s\": %.4f", routes, seconds() - begin);
	int has_vector = rte_fib6_select_lookup(fib, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512) == 0;
	if (has_vector)
		printf(", \"fib6_vector_sum\": %lu", sum());
	rte_fib6_select_lookup(fib, RTE_FIB6_LOOKUP_TRIE_SCALAR);
	printf(", \"fib6_scalar_sum\": %lu}\n", sum());
	while (next_round()) {
		rte_fib6_select_lookup(fib, RTE_FIB6_LOOKUP_TRIE_SCALAR);
		printf("{\"fib6_scalar\": %.2f", rate());
		if (has_vector) {
			rte_fib6_select_lookup(fib, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512);
			printf(", \"fib6_vector\": %.2f", rate());
		}
		printf("}\n");
	}
	rte_eal_cleanup();
	return 0;
}
