/*
 * The load of bench/live: UDP packets of 64 bytes out of one interface, and a look at what comes in by another.
 *
 *     load send INTERFACE DESTINATION_MAC FLOWS SECONDS RATE    RATE in packets a second; 0: as fast as it goes
 *     load echo INTERFACE                                       says "ready", and answers each packet until SIGTERM
 *     load watch INTERFACE SECONDS                              says "ready", then what came; SIGTERM ends it, too
 *
 * Flows are those of `wirerate bench forward`, except that each inside endpoint has two destinations; one after the other.
 * A packet carries its number and the moment at which it was handed to the kernel; the one who watches takes the kernel's
 * own moment of receipt, so that its own slowness does not count. Packets are sent by `sendmmsg`, past the queueing
 * discipline; one that the interface refuses (its ring is full) counts as sent, and lost.
 * 64 bytes are without the frame's check sequence, as everywhere in bench/.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "peer.h"

/* Bytes of a frame, and where in it the load's own words begin. */
#define LEN 64
#define WORDS 42

/* Packets handed over at once where the rate is no matter; else at most these. */
#define VECTOR 64
#define PACED 8

/* What each packet carries. */
struct words {
	uint32_t magic;
	uint32_t number;
	uint64_t sent;
} __attribute__((packed));
#define MAGIC 0x77726c64u

/* Latencies are told apart by a tenth of a microsecond, up to 100 ms. */
#define TENTHS 1000000u

static volatile sig_atomic_t ended;
static void end(int signal)
{
	(void)signal;
	ended = 1;
}

static uint64_t real_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint16_t checksum(const void *header)
{
	uint16_t words[10];
	uint32_t sum = 0;
	memcpy(words, header, sizeof words);
	for (int i = 0; i < 10; i++)
		sum += words[i];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void write_packet(uint8_t *frame, const uint8_t *header, uint32_t flow)
{
	uint32_t endpoint = flow / 2;
	memset(frame, 0x5a, LEN);
	memcpy(frame, header, 14);
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = htons(LEN - 14),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = htonl(0x0a010000 + endpoint / 16),
		.daddr = htonl(0xc6336400 + flow % 251 + 1),
	};
	ip.check = checksum(&ip);
	/* No UDP checksum: zero is allowed, and translating it then costs the kernel less. */
	struct udphdr udp = {
		.source = htons((uint16_t)(10000 + endpoint % 16)),
		.dest = htons(443),
		.len = htons(LEN - 34),
	};
	memcpy(frame + 14, &ip, 20);
	memcpy(frame + 34, &udp, 8);
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
	if (!flows)
		die("no flows");

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

	uint8_t (*ring)[LEN] = calloc(flows, LEN);
	for (uint32_t i = 0; i < flows; i++)
		write_packet(ring[i], header, i);
	struct mmsghdr messages[VECTOR] = { 0 };
	struct iovec vectors[VECTOR];
	uint64_t sent = 0, refused = 0;
	double begin = seconds(), now = begin;
	while (!ended && now - begin < limit) {
		uint32_t most = VECTOR;
		if (rate > 0) {
			uint64_t due = (uint64_t)((now - begin) * rate);
			if (due <= sent) {
				now = seconds();
				continue;
			}
			most = due - sent < PACED ? (uint32_t)(due - sent) : PACED;
		}
		if (most > flows)
			most = flows;
		uint64_t stamp = real_ns();
		for (uint32_t i = 0; i < most; i++) {
			uint8_t *frame = ring[(sent + i) % flows];
			struct words words = { MAGIC, (uint32_t)(sent + i), stamp };
			memcpy(frame + WORDS, &words, sizeof words);
			vectors[i] = (struct iovec){ frame, LEN };
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
	printf("{\"sent\": %lu, \"refused\": %lu, \"seconds\": %.4f}\n", sent, refused, now - begin);
	return 0;
}

static uint32_t seen[TENTHS + 1];

static double part(uint64_t count, double share)
{
	uint64_t wanted = (uint64_t)((double)count * share), sum = 0;
	uint32_t i = 0;
	while (i < TENTHS && (sum += seen[i]) <= wanted)
		i++;
	return i / 10.0;
}

static int watch(char **argv)
{
	int in = packet_socket(argv[0], htons(ETH_P_IP));
	double limit = strtod(argv[1], NULL);
	int on = 1, room = 256 << 20;
	if (setsockopt(in, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0 ||
	    setsockopt(in, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) < 0) {
		perror(argv[0]);
		return 1;
	}
	static uint8_t frames[VECTOR][LEN];
	static union {
		char bytes[CMSG_SPACE(sizeof(struct timespec))];
		struct cmsghdr align;
	} control[VECTOR];
	struct iovec vectors[VECTOR];
	struct mmsghdr messages[VECTOR];
	uint64_t came = 0, longest = 0, overtaken = 0;
	uint32_t next = 0;
	printf("ready\n");
	fflush(stdout);
	double begin = seconds();
	while (!ended && seconds() - begin < limit) {
		struct pollfd readable = { .fd = in, .events = POLLIN };
		if (poll(&readable, 1, 50) <= 0)
			continue;
		for (int i = 0; i < VECTOR; i++) {
			vectors[i] = (struct iovec){ frames[i], sizeof frames[i] };
			messages[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &vectors[i],
								    .msg_iovlen = 1,
								    .msg_control = &control[i],
								    .msg_controllen = sizeof control[i] } };
		}
		int many = recvmmsg(in, messages, VECTOR, MSG_DONTWAIT, NULL);
		for (int i = 0; i < many; i++) {
			struct words words;
			struct cmsghdr *head = CMSG_FIRSTHDR(&messages[i].msg_hdr);
			if (messages[i].msg_len < WORDS + sizeof words || !head)
				continue;
			memcpy(&words, frames[i] + WORDS, sizeof words);
			if (words.magic != MAGIC)
				continue;
			struct timespec got;
			memcpy(&got, CMSG_DATA(head), sizeof got);
			uint64_t at = (uint64_t)got.tv_sec * 1000000000u + (uint64_t)got.tv_nsec;
			uint64_t took = at > words.sent ? at - words.sent : 0;
			came++;
			if (took > longest)
				longest = took;
			seen[took / 100 < TENTHS ? took / 100 : TENTHS]++;
			if ((int32_t)(words.number - next) < 0)
				overtaken++;
			else
				next = words.number + 1;
		}
	}
	struct tpacket_stats lost = { 0 };
	socklen_t size = sizeof lost;
	getsockopt(in, SOL_PACKET, PACKET_STATISTICS, &lost, &size);
	printf("{\"came\": %lu, \"overtaken\": %lu, \"missed\": %u, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, "
	       "\"longest_us\": %.1f}\n",
	       came, overtaken, lost.tp_drops, part(came, 0.5), part(came, 0.99), part(came, 0.999), (double)longest / 1e3);
	return 0;
}

/* Sends each packet of ours back to where it came from, so that whoever tracks connections has seen both directions. */
static int echo(char **argv)
{
	int fd = packet_socket(argv[0], htons(ETH_P_IP));
	int on = 1, room = 64 << 20;
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	printf("ready\n");
	fflush(stdout);
	while (!ended) {
		uint8_t frame[LEN], other[6];
		struct words words;
		struct pollfd readable = { .fd = fd, .events = POLLIN };
		if (poll(&readable, 1, 50) <= 0 || recv(fd, frame, sizeof frame, MSG_DONTWAIT) < LEN)
			continue;
		memcpy(&words, frame + WORDS, sizeof words);
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
	if (argc == 7 && !strcmp(argv[1], "send"))
		return send_load(argv + 2);
	if (argc == 4 && !strcmp(argv[1], "watch"))
		return watch(argv + 2);
	if (argc == 3 && !strcmp(argv[1], "echo"))
		return echo(argv + 2);
	die("usage: load send INTERFACE DESTINATION_MAC FLOWS SECONDS RATE | load echo INTERFACE | load watch INTERFACE SECONDS");
}
