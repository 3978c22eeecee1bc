/*
 * The load of bench/live, bench/fast and bench/qos: UDP packets out of one interface, and a look at what comes in by another.
 *
 *     load send INTERFACE DESTINATION_MAC FLOWS SECONDS RATE [BYTES [COUNT]]
 *                                                               RATE in packets a second; 0: as fast as it goes
 *     load echo INTERFACE                                       says "ready", and answers each packet until SIGTERM
 *     load watch INTERFACE SECONDS                              says "ready", then what came; SIGTERM ends it, too
 *     load stamp INTERFACE COUNT SECONDS                        says "ready", then the times at which so many came, by the kernel:
 *                                                               nanoseconds, 8 bytes each, in the machine's order
 *
 * Flows are those of `wirerate bench forward`, except that each inside endpoint has two destinations; one after the other.
 * A packet carries its number and the moment at which it was handed to the kernel; a BPF program looks at what comes in,
 * drops it and keeps the account. Packets are sent by `sendmmsg`, past the queueing
 * discipline; one that the interface refuses (its ring is full) counts as sent, and lost.
 * BYTES (64) are without the frame's check sequence, as everywhere in bench/. With COUNT it ends behind so many packets.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "packet.h"
#include "peer.h"
#include "program.h"

/* Packets handed over at once where the rate is no matter; else at most these. */
#define VECTOR 64
#define PACED 8

/* Packets that may be made up for. */
#define LATE 64

/* What the payload of each packet begins with. */
struct words {
	uint32_t magic;
	uint32_t number;
	uint64_t sent;
} __attribute__((packed));
#define MAGIC 0x77726c64

/* Longest frame without jumbo. */
#define LONGEST 1514

/* Latencies are told apart by an eighth of a microsecond, up to 33 ms. */
#define STEP_NS 128
#define STEPS 262144

/* Packets that are told from one that came already: so many from the first on. */
#define NUMBERED (1u << 27)

static volatile sig_atomic_t ended;
static void end(int signal)
{
	(void)signal;
	ended = 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Seconds that all cores together have done nothing, or were not given to this machine. */
static double idle(void)
{
	FILE *file = fopen("/proc/stat", "r");
	unsigned long fields[8] = { 0 };
	if (!file || fscanf(file, "cpu %lu %lu %lu %lu %lu %lu %lu %lu", fields, fields + 1, fields + 2, fields + 3, fields + 4,
			    fields + 5, fields + 6, fields + 7) != 8)
		die("no /proc/stat");
	fclose(file);
	return (double)(fields[3] + fields[4] + fields[7]) / (double)sysconf(_SC_CLK_TCK);
}

static int packet_socket(const char *interface, int protocol)
{
	int fd = socket(AF_PACKET, SOCK_RAW, protocol);
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = (unsigned short)protocol,
		.sll_ifindex = (int)if_nametoindex(interface),
	};
	if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof to) < 0) {
		perror(interface);
		exit(1);
	}
	return fd;
}

static int send_load(char **argv)
{
	uint8_t header[14] = { 0 };
	if (sscanf(argv[1], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", header, header + 1, header + 2, header + 3, header + 4,
		   header + 5) != 6)
		die("not a MAC address");
	header[12] = 0x08;
	uint32_t flows = (uint32_t)strtoul(argv[2], NULL, 10);
	double limit = strtod(argv[3], NULL), rate = strtod(argv[4], NULL);
	uint32_t bytes = argv[5] ? (uint32_t)strtoul(argv[5], NULL, 10) : LEN;
	uint64_t count = argv[5] && argv[6] ? strtoul(argv[6], NULL, 10) : UINT64_MAX;
	if (!flows || bytes < PAYLOAD + sizeof(struct words) || bytes > LONGEST)
		die("no flows, or packets of another length than they can have");

	prctl(PR_SET_TIMERSLACK, 1);
	int out = packet_socket(argv[0], 0);
	struct ifreq request = { 0 };
	strncpy(request.ifr_name, argv[0], IFNAMSIZ - 1);
	int on = 1;
	if (ioctl(out, SIOCGIFHWADDR, &request) < 0 ||
	    setsockopt(out, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) < 0) {
		perror(argv[0]);
		return 1;
	}
	memcpy(header + 6, request.ifr_hwaddr.sa_data, 6);

	uint8_t *ring = calloc(flows, bytes);
	for (uint32_t i = 0; i < flows; i++)
		write_packet(ring + (size_t)i * bytes, header, i / 2, i, bytes);
	struct mmsghdr messages[VECTOR] = { 0 };
	struct iovec vectors[VECTOR];
	uint64_t sent = 0, refused = 0;
	double begin = seconds(), now = begin, since = begin, rested = idle();
	while (!ended && now - begin < limit && sent < count) {
		uint32_t most = VECTOR;
		if (rate > 0) {
			uint64_t due = (uint64_t)((now - begin) * rate);
			if (due < sent + PACED) {
				/* Not spinning: a guest whose cores are all busy may be stopped by its host for milliseconds. */
				const struct timespec moment = { .tv_nsec = 5000 };
				nanosleep(&moment, NULL);
				now = seconds();
				continue;
			}
			/* What could not be sent in time, as others had the core, is not sent at once later. */
			if (due - sent > LATE) {
				begin += (double)(due - sent - LATE) / rate;
				limit -= (double)(due - sent - LATE) / rate;
				due = sent + LATE;
			}
			most = due - sent < PACED ? (uint32_t)(due - sent) : PACED;
		}
		if (most > flows)
			most = flows;
		if (most > count - sent)
			most = (uint32_t)(count - sent);
		uint64_t stamp = now_ns();
		for (uint32_t i = 0; i < most; i++) {
			uint8_t *frame = ring + (sent + i) % flows * bytes;
			struct words words = { MAGIC, (uint32_t)(sent + i), stamp };
			memcpy(frame + PAYLOAD, &words, sizeof words);
			vectors[i] = (struct iovec){ frame, bytes };
			messages[i].msg_hdr.msg_iov = &vectors[i];
			messages[i].msg_hdr.msg_iovlen = 1;
		}
		int taken = sendmmsg(out, messages, most, 0);
		if (taken < 0 && errno != ENOBUFS && errno != EAGAIN && errno != EINTR) {
			perror("sendmmsg");
			return 1;
		}
		sent += taken > 0 ? (uint64_t)taken : 0;
		if (taken < (int)most) {
			sent++;
			refused++;
		}
		now = seconds();
	}
	double busy = (double)sysconf(_SC_NPROCESSORS_ONLN) * (seconds() - since) - (idle() - rested);
	printf("{\"sent\": %lu, \"refused\": %lu, \"seconds\": %.4f, \"busy\": %.3f}\n", sent, refused, now - begin, busy);
	return 0;
}

/* `enum bpf_attach_type` of Linux 6.6; the headers may be older. */
#define TCX_INGRESS 46

/* Words of the summary: packets of ours, overtaken ones, the number expected next, those that came before. */
enum { CAME, OVERTAKEN, NEXT, DOUBLED, COUNTS };

/*
 * The program that counts what is ours, by how long it was under way, and drops it; all else is let through. In the kernel,
 * as a program that takes packets there would have no core left beside a sender. Several cores may run it at once, as a router's worker and
 * its kernel both send: counts are atomic. Which of two packets that come at once is expected next stays open.
 */
static int watcher(int summary, int latency, int numbers)
{
	const struct bpf_insn code[] = {
		LOAD(BPF_W, 6, 1, offsetof(struct __sk_buff, data)),
		LOAD(BPF_W, 7, 1, offsetof(struct __sk_buff, data_end)),
		MOV(2, 6), ALUI(BPF_ADD, 2, LEN),
		JUMP(BPF_JGT, 2, 7, 54),
		LOAD(BPF_W, 1, 6, PAYLOAD),
		JUMPI(BPF_JNE, 1, MAGIC, 52),
		LOAD(BPF_W, 8, 6, PAYLOAD + (int)offsetof(struct words, number)),
		LOAD(BPF_DW, 9, 6, PAYLOAD + (int)offsetof(struct words, sent)),
		/* r7 = the packet's bit if it was set already. */
		MOV(1, 8), ALUI(BPF_RSH, 1, 6), STORE(BPF_W, 10, 1, -4),
		MOV(2, 10), ALUI(BPF_ADD, 2, -4),
		MAP(1, numbers),
		CALL(BPF_FUNC_map_lookup_elem),
		MOVI(7, 0),
		JUMPI(BPF_JEQ, 0, 0, 5),
		MOVI(7, 1), ALU(BPF_LSH, 7, 8),
		MOV(1, 7),
		INSN(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, BPF_OR | BPF_FETCH),
		ALU(BPF_AND, 7, 1),
		STOREI(BPF_W, 10, -4, 0),
		MOV(2, 10), ALUI(BPF_ADD, 2, -4),
		MAP(1, summary),
		CALL(BPF_FUNC_map_lookup_elem),
		JUMPI(BPF_JEQ, 0, 0, 28),
		COUNT(0, 8 * CAME),
		JUMPI(BPF_JEQ, 7, 0, 2),
		COUNT(0, 8 * DOUBLED),
		LOAD(BPF_DW, 1, 0, 8 * NEXT),
		JUMP(BPF_JGE, 8, 1, 3),
		COUNT(0, 8 * OVERTAKEN),
		INSN(BPF_JMP | BPF_JA, 0, 0, 2, 0),
		ALUI(BPF_ADD, 8, 1), STORE(BPF_DW, 0, 8, 8 * NEXT),
		CALL(BPF_FUNC_ktime_get_ns),
		ALU(BPF_SUB, 0, 9),
		ALUI(BPF_DIV, 0, STEP_NS),
		JUMPI(BPF_JLE, 0, STEPS - 1, 1),
		MOVI(0, STEPS - 1),
		STORE(BPF_W, 10, 0, -4),
		MOV(2, 10), ALUI(BPF_ADD, 2, -4),
		MAP(1, latency),
		CALL(BPF_FUNC_map_lookup_elem),
		JUMPI(BPF_JEQ, 0, 0, 2),
		COUNT(0, 0),
		MOVI(0, TC_ACT_SHOT),
		EXIT,
		MOVI(0, TC_ACT_UNSPEC),
		EXIT,
	};
	return program(BPF_PROG_TYPE_SCHED_CLS, code, sizeof code);
}

static double part(const uint64_t *seen, uint64_t count, double share)
{
	uint64_t wanted = (uint64_t)((double)count * share), sum = 0;
	uint32_t i = 0;
	while (i < STEPS - 1 && (sum += seen[i]) <= wanted)
		i++;
	return (i + 1) * (STEP_NS / 1e3);
}

static int watch(char **argv)
{
	int summary = array(8 * COUNTS, 1), latency = array(8, STEPS), numbers = array(8, NUMBERED / 64);
	union bpf_attr attr = { .link_create = {
		.prog_fd = (uint32_t)watcher(summary, latency, numbers),
		.target_ifindex = if_nametoindex(argv[0]),
		.attach_type = TCX_INGRESS,
	} };
	bpf(argv[0], BPF_LINK_CREATE, &attr);
	printf("ready\n");
	fflush(stdout);
	double limit = strtod(argv[1], NULL), begin = seconds();
	while (!ended && seconds() - begin < limit)
		usleep(10000);
	static uint64_t seen[STEPS];
	uint64_t counts[COUNTS];
	look_up(summary, 0, counts);
	for (uint32_t i = 0; i < STEPS; i++)
		look_up(latency, i, &seen[i]);
	uint64_t came = counts[CAME];
	printf("{\"came\": %lu, \"overtaken\": %lu, \"doubled\": %lu, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.1f, \"longest_us\": %.1f}\n", came,
	       counts[OVERTAKEN], counts[DOUBLED], part(seen, came, 0.5), part(seen, came, 0.99), part(seen, came, 0.999), part(seen, came, 1 - 1e-12));
	return 0;
}

/*
 * Moments at which packets of ours came, by the kernel's stamp. It looks every two milliseconds, as it would otherwise be woken for
 * each packet in the middle of what is measured.
 */
static int stamp(char **argv)
{
	int fd = packet_socket(argv[0], htons(ETH_P_IP)), on = 1, room = 64 << 20;
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0)
		die("no time stamps");
	size_t wanted = strtoul(argv[1], NULL, 10), came = 0;
	double limit = strtod(argv[2], NULL);
	uint64_t *moments = calloc(wanted + 1, sizeof *moments);
	static uint8_t frames[VECTOR][PAYLOAD + sizeof(struct words)];
	static char control[VECTOR][CMSG_SPACE(sizeof(struct timespec))];
	struct iovec vectors[VECTOR];
	struct mmsghdr messages[VECTOR];
	printf("ready\n");
	fflush(stdout);
	double begin = seconds();
	while (!ended && came < wanted && seconds() - begin < limit) {
		for (int i = 0; i < VECTOR; i++) {
			vectors[i] = (struct iovec){ frames[i], sizeof frames[i] };
			messages[i].msg_hdr = (struct msghdr){
				.msg_iov = &vectors[i],
				.msg_iovlen = 1,
				.msg_control = control[i],
				.msg_controllen = sizeof control[i],
			};
		}
		int got = recvmmsg(fd, messages, VECTOR, MSG_DONTWAIT, NULL);
		for (int i = 0; i < got && came < wanted; i++) {
			struct words words;
			struct timespec at;
			struct cmsghdr *header = CMSG_FIRSTHDR(&messages[i].msg_hdr);
			memcpy(&words, frames[i] + PAYLOAD, sizeof words);
			if (words.magic != MAGIC || !header || header->cmsg_type != SCM_TIMESTAMPNS)
				continue;
			memcpy(&at, CMSG_DATA(header), sizeof at);
			moments[came++] = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
		}
		if (got < VECTOR)
			usleep(2000);
	}
	return fwrite(moments, sizeof *moments, came, stdout) == came && !fflush(stdout) ? 0 : 1;
}

/* Sends each packet of ours back to where it came from, so that whoever tracks connections has seen both directions. */
static int echo(char **argv)
{
	int fd = packet_socket(argv[0], htons(ETH_P_IP));
	int on = 1, room = 64 << 20;
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	/* A sender on the same core waits for its time in a loop: with equal shares the socket's room ends before a million answers. */
	if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 1 }))
		die("sched_setscheduler");
	printf("ready\n");
	fflush(stdout);
	while (!ended) {
		uint8_t frame[LEN], other[6];
		struct words words;
		struct pollfd readable = { .fd = fd, .events = POLLIN };
		if (poll(&readable, 1, 50) <= 0 || recv(fd, frame, sizeof frame, MSG_DONTWAIT) < LEN)
			continue;
		memcpy(&words, frame + PAYLOAD, sizeof words);
		if (words.magic != MAGIC)
			continue;
		memcpy(other, frame, 6);
		memcpy(frame, frame + 6, 6);
		memcpy(frame + 6, other, 6);
		memcpy(other, frame + 26, 4);
		memcpy(frame + 26, frame + 30, 4);
		memcpy(frame + 30, other, 4);
		memcpy(other, frame + 34, 2);
		memcpy(frame + 34, frame + 36, 2);
		memcpy(frame + 36, other, 2);
		send(fd, frame, sizeof frame, 0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = end };
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	if (argc >= 7 && argc <= 9 && !strcmp(argv[1], "send"))
		return send_load(argv + 2);
	if (argc == 4 && !strcmp(argv[1], "watch"))
		return watch(argv + 2);
	if (argc == 3 && !strcmp(argv[1], "echo"))
		return echo(argv + 2);
	if (argc == 5 && !strcmp(argv[1], "stamp"))
		return stamp(argv + 2);
	die("usage: load send INTERFACE DESTINATION_MAC FLOWS SECONDS RATE [BYTES [COUNT]] | load echo INTERFACE | "
	    "load watch INTERFACE SECONDS | load stamp INTERFACE COUNT SECONDS");
}
