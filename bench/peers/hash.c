/*
 * DPDK's rte_hash with the keys of flows: addresses, ports and protocol, 13 bytes.
 *
 *     hash EAL_ARGUMENTS -- COUNT...
 *
 * Look-ups are of keys that are there, drawn at random, in bulk; inserts are one by one, as rte_hash has no
 * other way, into an empty table with room for a quarter more. The hash is CRC32 by instruction, its fastest.
 * The keys are the ones of dataplane/benches/flow.rs. What wirerate does for a flow in the same time is more:
 * both directions lead to it, and it is written to.
 */
#include <rte_eal.h>
#include <rte_memory.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>

#include "peer.h"

#define KEY 13

struct table {
	uint32_t keys;
	struct rte_hash *hash;
};

static void write_key(uint8_t *key, uint32_t number)
{
	uint32_t source = 0x0a000000 | number, destination = 0xc6336407;
	uint16_t sport = (uint16_t)(number >> 3), dport = 443;
	memcpy(key, &source, 4);
	memcpy(key + 4, &destination, 4);
	memcpy(key + 8, &sport, 2);
	memcpy(key + 10, &dport, 2);
	key[12] = 17;
}

/* Millions of inserts a second. */
static double fill(struct table *table)
{
	uint8_t key[16];
	uint32_t times = 1000000 / table->keys ? 1000000 / table->keys : 1;
	double spent = 0;
	for (uint32_t time = 0; time < times; time++) {
		rte_hash_reset(table->hash);
		double begin = seconds();
		for (uint32_t i = 0; i < table->keys; i++) {
			write_key(key, i);
			if (rte_hash_add_key_data(table->hash, key, (void *)(uintptr_t)(i + 1)))
				die("rte_hash refuses a key");
		}
		spent += seconds() - begin;
	}
	return (double)times * table->keys / spent / 1e6;
}

/* Millions of look-ups a second. */
static double look_up(const struct table *table)
{
	static uint64_t random = 88172645463325252u;
	uint8_t keys[BATCH][16];
	const void *places[BATCH];
	void *data[BATCH];
	size_t done = 0;
	double begin = seconds(), now;
	for (int i = 0; i < BATCH; i++)
		places[i] = keys[i];
	do {
		for (int round = 0; round < 1024; round++) {
			uint64_t hits = 0;
			for (int i = 0; i < BATCH; i++) {
				random ^= random << 13;
				random ^= random >> 7;
				random ^= random << 17;
				write_key(keys[i], (uint32_t)(((random >> 32) * table->keys) >> 32));
			}
			rte_hash_lookup_bulk_data(table->hash, places, BATCH, &hits, data);
			keep(data);
			if (~hits)
				die("rte_hash does not find a key");
		}
		done += 1024 * BATCH;
		now = seconds();
	} while (now - begin < ROUND);
	return (double)done / (now - begin) / 1e6;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 2)
		die("usage: hash EAL_ARGUMENTS -- COUNT...");
	int tables = argc - used - 1;
	struct table *table = calloc((size_t)tables, sizeof *table);
	for (int i = 0; i < tables; i++) {
		char name[32];
		snprintf(name, sizeof name, "peer%d", i);
		table[i].keys = (uint32_t)strtoul(argv[used + 1 + i], NULL, 10);
		struct rte_hash_parameters parameters = {
			.name = name,
			.entries = table[i].keys / 4 * 5,
			.key_len = KEY,
			.hash_func = rte_hash_crc,
			.socket_id = SOCKET_ID_ANY,
		};
		table[i].hash = rte_hash_create(&parameters);
		if (!table[i].hash)
			die("no memory for rte_hash");
	}
	printf("{}\n");
	while (next_round()) {
		printf("{");
		for (int i = 0; i < tables; i++) {
			double inserts = fill(&table[i]);
			printf("%s\"insert_%u\": %.2f, \"look_up_%u\": %.2f", i ? ", " : "", table[i].keys, inserts,
			       table[i].keys, look_up(&table[i]));
		}
		printf("}\n");
	}
	rte_eal_cleanup();
	return 0;
}
