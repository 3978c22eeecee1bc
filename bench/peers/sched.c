/*
 * DPDK's rte_sched on the work of `wirerate bench schedule`: frames of 64 bytes into a scheduler and out of it.
 *
 *     sched EAL_ARGUMENTS -- SUBSCRIBERS [BACKLOG [ACTIVE]]
 *
 * One subport with a pipe for each subscriber (a power of two, as rte_sched wants it); 16 queues of 64 packets a
 * pipe: 12 of strict priority and 4 that share the rest. Every rate is the port's, so that nothing is ever held back.
 * BACKLOG packets wait all the time, one a queue without it; ACTIVE subscribers have packets, evenly spaced, all
 * without it.
 *
 * A burst puts 32 packets in, each into a queue drawn at random, and takes 32 out, which are the next to go in. To
 * draw the queue and to write it into the packet is part of what is measured. A packet counts when it has come out.
 *
 * The first line of JSON says what was set up. Each line on standard input, with the seconds to measure (1 where it
 * has none), is then answered with millions of packets a second; how many were dropped, as their queue was full; and
 * how many bursts gave fewer packets than were asked for.
 */
#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_sched.h>

#include "peer.h"

#define BURST 32
#define FRAME 64
#define QUEUE_SIZE 64

/* Bytes a second: 100 Gbit/s. */
#define RATE 12500000000u

/* Bytes that a token bucket holds. It gets new ones when rte_sched comes to a pipe, which it then empties: all of the
 * pipe's queues must fit. */
#define BUCKET (1 << 24)

/* Milliseconds after which the credits of the traffic classes are new. */
#define PERIOD 10

struct account {
	uint64_t packets, drops, short_bursts;
};

static struct rte_sched_port *port;
static struct rte_mempool *pool;
static uint32_t subscribers, active;

/* Packets that are not in the scheduler. */
static struct rte_mbuf *hand[BURST];
static uint32_t held;

static uint32_t number(const char *text)
{
	return (uint32_t)strtoul(text, NULL, 10);
}

/* Sets the scheduler up; returns the bytes that it takes. */
static uint32_t build(void)
{
	struct rte_sched_subport_profile_params whole = { .tb_rate = RATE, .tb_size = BUCKET, .tc_period = PERIOD };
	struct rte_sched_pipe_params pipe = {
		.tb_rate = RATE,
		.tb_size = BUCKET,
		.tc_period = PERIOD,
		.tc_ov_weight = 1,
		.wrr_weights = { 1, 1, 1, 1 },
	};
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = subscribers,
		.pipe_profiles = &pipe,
		.n_pipe_profiles = 1,
		.n_max_pipe_profiles = 1,
	};
	for (int class = 0; class < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; class++) {
		whole.tc_rate[class] = pipe.tc_rate[class] = RATE;
		subport.qsize[class] = QUEUE_SIZE;
	}
	struct rte_sched_port_params params = {
		.name = "peer",
		.socket = (int)rte_socket_id(),
		.rate = RATE,
		.mtu = 1522,
		.frame_overhead = RTE_SCHED_FRAME_OVERHEAD_DEFAULT,
		.n_subports_per_port = 1,
		.subport_profiles = &whole,
		.n_subport_profiles = 1,
		.n_max_subport_profiles = 1,
		.n_pipes_per_subport = subscribers,
	};
	struct rte_sched_subport_params *subports[] = { &subport };
	uint32_t bytes = rte_sched_port_get_memory_footprint(&params, subports);
	port = rte_sched_port_config(&params);
	if (!port || rte_sched_subport_config(port, 0, &subport, 0))
		die("rte_sched cannot be set up");
	for (uint32_t at = 0; at < subscribers; at++)
		if (rte_sched_pipe_config(port, 0, at, 0))
			die("rte_sched refuses a pipe");
	return bytes;
}

static inline uint32_t class_of(uint32_t queue)
{
	return queue < RTE_SCHED_TRAFFIC_CLASS_BE ? queue : RTE_SCHED_TRAFFIC_CLASS_BE;
}

static struct rte_mbuf *fresh(void)
{
	struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);
	char *frame = packet ? rte_pktmbuf_append(packet, FRAME) : NULL;
	if (!frame)
		die("no memory for a packet");
	memset(frame, 0, FRAME);
	return packet;
}

/* Writes the queue as rte_sched_port_pkt_write does, which is a call and finds the same by more steps. */
static inline void send_to(struct rte_mbuf *packet, uint32_t pipe, uint32_t queue)
{
	uint32_t at = pipe * RTE_SCHED_QUEUES_PER_PIPE + queue;
	rte_mbuf_sched_set(packet, at, (uint8_t)class_of(queue), RTE_COLOR_GREEN);
}

/* Whether `send_to` means the queues that rte_sched means. */
static void check(void)
{
	struct rte_mbuf *packet = fresh();
	for (uint32_t at = 0; at < subscribers * RTE_SCHED_QUEUES_PER_PIPE; at++) {
		uint32_t queue = at % RTE_SCHED_QUEUES_PER_PIPE, class = class_of(queue);
		uint32_t pipe = at / RTE_SCHED_QUEUES_PER_PIPE;
		rte_sched_port_pkt_write(port, packet, 0, pipe, class, queue - class, RTE_COLOR_GREEN);
		struct rte_mbuf_sched theirs = packet->hash.sched;
		send_to(packet, pipe, queue);
		if (theirs.queue_id != packet->hash.sched.queue_id ||
		    theirs.traffic_class != packet->hash.sched.traffic_class)
			die("rte_sched numbers its queues in another way");
	}
	rte_pktmbuf_free(packet);
}

/* Puts all in that is held, each packet into any queue of an active subscriber; returns how many went in. */
static inline uint32_t enqueue(void)
{
	static uint64_t random = 88172645463325252u;
	uint32_t queues = active * RTE_SCHED_QUEUES_PER_PIPE, space = subscribers / active;
	for (uint32_t i = 0; i < held; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		uint32_t at = (uint32_t)(((random >> 32) * queues) >> 32);
		send_to(hand[i], at / RTE_SCHED_QUEUES_PER_PIPE * space, at % RTE_SCHED_QUEUES_PER_PIPE);
	}
	return (uint32_t)rte_sched_port_enqueue(port, hand, held);
}

static void fill(uint32_t backlog)
{
	for (uint32_t in = 0; in < backlog; in += enqueue())
		for (held = 0; held < BURST && held < backlog - in; held++)
			hand[held] = fresh();
	for (held = 0; held < BURST; held++)
		hand[held] = fresh();
}

static inline void burst(struct account *account)
{
	uint32_t dropped = held - enqueue(), wanted = BURST - dropped;
	/* Asked for none, rte_sched does not stop. */
	held = wanted ? (uint32_t)rte_sched_port_dequeue(port, hand, wanted) : 0;
	account->packets += held;
	account->drops += dropped;
	account->short_bursts += held < wanted;
	/* What it dropped it has freed. As many others come, so that the backlog stays what it is. */
	while (dropped--)
		hand[held++] = fresh();
}

static double measure(double time, struct account *account)
{
	double begin = seconds(), now;
	do {
		for (int i = 0; i < 256; i++)
			burst(account);
		now = seconds();
	} while (now - begin < time);
	return now - begin;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 2)
		die("usage: sched EAL_ARGUMENTS -- SUBSCRIBERS [BACKLOG [ACTIVE]]");
	subscribers = number(argv[used + 1]);
	active = argc - used > 3 ? number(argv[used + 3]) : subscribers;
	if (!rte_is_power_of_2(subscribers) || active == 0 || active > subscribers)
		die("SUBSCRIBERS must be a power of two, and ACTIVE from 1 to as many");
	uint32_t backlog = argc - used > 2 ? number(argv[used + 2]) : active * RTE_SCHED_QUEUES_PER_PIPE;
	/* With more, the draw would find full queues all the time. */
	if (backlog == 0 || backlog > active * RTE_SCHED_QUEUES_PER_PIPE * (QUEUE_SIZE / 2))
		die("BACKLOG must be from 1 to 32 a queue of the active subscribers");

	double begin = seconds();
	uint32_t memory = build();
	double took = seconds() - begin;
	pool = rte_pktmbuf_pool_create("peer", backlog + BURST, 0, 0, RTE_PKTMBUF_HEADROOM + FRAME,
				       (int)rte_socket_id());
	if (!pool)
		die("no memory for the packets");
	check();
	fill(backlog);
	struct account warm = { 0 };
	measure(ROUND, &warm);
	if (warm.packets == 0)
		die("rte_sched gives no packet");
	uint32_t queues = subscribers * RTE_SCHED_QUEUES_PER_PIPE;
	printf("{\"subscribers\": %u, \"queues\": %u, \"active\": %u, \"backlog\": %u, \"burst\": %u, "
	       "\"build_seconds\": %.4f, \"memory_bytes\": %u}\n",
	       subscribers, queues, active, backlog, BURST, took, memory);

	char line[64];
	while (fflush(stdout), fgets(line, sizeof line, stdin)) {
		struct account account = { 0 };
		double time = 1;
		sscanf(line, "%lf", &time);
		time = measure(time, &account);
		printf("{\"subscribers\": %u, \"queues\": %u, \"mpps\": %.3f, \"packets\": %lu, \"drops\": %lu, "
		       "\"short_bursts\": %lu}\n", subscribers, queues, (double)account.packets / time / 1e6,
		       account.packets, account.drops, account.short_bursts);
	}
	rte_eal_cleanup();
	return 0;
}
