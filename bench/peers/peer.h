/*
 * What the peers share: reading the tables that `wirerate bench routes --dump DIR` wrote, and time.
 *
 * A peer builds its tables, prints one line of JSON about that, and then answers each line on its standard
 * input with one round of measurements, again a line of JSON. So whoever runs it can let it and wirerate
 * take turns, and a table that takes minutes to build is built once. It ends when its input does.
 */
#ifndef PEER_H
#define PEER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Addresses handed over at once, as wirerate's pipeline does. */
#define BATCH 64

/* How long one measurement lasts at least, in seconds. */
#define ROUND 0.2

/* As in `v4-prefixes.bin`: little-endian, as are the machines that this runs on. */
struct prefix4 {
	uint32_t address, length, value;
};

/* As in `v6-prefixes.bin`. */
struct prefix6 {
	uint8_t address[16];
	uint32_t length, value;
};

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void die(const char *what)
{
	fprintf(stderr, "peer: %s\n", what);
	exit(1);
}

/* All of a file; `count` is how many items of `size` bytes it has. */
static inline void *load(const char *directory, const char *name, size_t size, size_t *count)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE *file = fopen(path, "rb");
	if (!file) {
		perror(path);
		exit(1);
	}
	fseek(file, 0, SEEK_END);
	size_t bytes = (size_t)ftell(file);
	rewind(file);
	void *items = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (!items || fread(items, 1, bytes, file) != bytes)
		die("a table cannot be read");
	fclose(file);
	*count = bytes / size;
	return items;
}

/* Waits until another round is asked for; 0 when no more are. */
static inline int next_round(void)
{
	char line[64];
	fflush(stdout);
	return fgets(line, sizeof line, stdin) != NULL;
}

/* Makes the compiler believe that the memory at `at` is looked at. */
static inline void keep(const void *at)
{
	__asm__ volatile("" : : "r"(at) : "memory");
}

#endif
