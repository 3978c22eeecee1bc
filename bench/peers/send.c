/*
 * Sends 64-byte UDP packets as fast as one core can, past the queueing discipline of its interface, and says
 * how many: the load for peers that live in the kernel.
 *
 *     send INTERFACE DESTINATION_MAC FLOWS SECONDS [once]
 *
 * The flows are those of `wirerate bench forward`, drawn at random: from 10.1.0.0 on, 16 flows a host, to
 * addresses of 198.51.100.0/24, port 443. `once` sends each flow's packet once, in order, then stops.
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
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "peer.h"

/* Bytes of a frame. */
#define LEN 64

/* Packets handed over at once. */
#define VECTOR 256

/* Packets that lie ready, so that drawing them costs nothing while sending. */
#define RING (1u << 18)

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
	memcpy(frame, header, 14);
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = htons(LEN - 14),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = htonl(0x0a010000 + flow / 16),
		.daddr = htonl(0xc6336400 + flow % 251 + 1),
	};
	ip.check = checksum(&ip);
	/* No UDP checksum: zero is allowed, and translating it then costs the kernel less. */
	struct udphdr udp = {
		.source = htons((uint16_t)(10000 + flow % 16)),
		.dest = htons(443),
		.len = htons(LEN - 34),
	};
	memcpy(frame + 14, &ip, 20);
	memcpy(frame + 34, &udp, 8);
	memset(frame + 42, 0x5a, LEN - 42);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		die("usage: send INTERFACE DESTINATION_MAC FLOWS SECONDS [once]");
	uint8_t header[14] = { 0 };
	if (sscanf(argv[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", header, header + 1, header + 2, header + 3, header + 4,
		   header + 5) != 6)
		die("not a MAC address");
	header[12] = 0x08;
	uint32_t flows = (uint32_t)strtoul(argv[3], NULL, 10);
	double limit = strtod(argv[4], NULL);
	int once = argc > 5;

	int out = socket(AF_PACKET, SOCK_RAW, 0);
	struct ifreq request = { 0 };
	strncpy(request.ifr_name, argv[1], IFNAMSIZ - 1);
	if (out < 0 || ioctl(out, SIOCGIFHWADDR, &request) < 0) {
		perror(argv[1]);
		return 1;
	}
	memcpy(header + 6, request.ifr_hwaddr.sa_data, 6);
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_ifindex = (int)if_nametoindex(argv[1]),
		.sll_halen = 6,
	};
	int on = 1;
	if (setsockopt(out, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) < 0 ||
	    bind(out, (struct sockaddr *)&to, sizeof to) < 0) {
		perror(argv[1]);
		return 1;
	}

	uint32_t packets = once ? flows : RING;
	uint8_t (*ring)[LEN] = calloc(packets, LEN);
	uint64_t random = 88172645463325252u;
	for (uint32_t i = 0; i < packets; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		write_packet(ring[i], header, once ? i : (uint32_t)(((random >> 32) * flows) >> 32));
	}
	struct mmsghdr messages[VECTOR] = { 0 };
	struct iovec vectors[VECTOR];
	uint64_t sent = 0, refused = 0;
	uint32_t at = 0;
	double begin = seconds(), now = begin;
	while (once ? at < packets : now - begin < limit) {
		int many = 0;
		for (; many < VECTOR && at + (uint32_t)many < packets; many++) {
			vectors[many] = (struct iovec){ ring[at + (uint32_t)many], LEN };
			messages[many].msg_hdr.msg_iov = &vectors[many];
			messages[many].msg_hdr.msg_iovlen = 1;
		}
		int taken = sendmmsg(out, messages, (unsigned)many, 0);
		if (taken > 0) {
			sent += (uint64_t)taken;
			at += (uint32_t)taken;
		} else if (errno == ENOBUFS || errno == EAGAIN) {
			refused++;
		} else {
			perror("sendmmsg");
			return 1;
		}
		if (!once && at == packets)
			at = 0;
		now = seconds();
	}
	printf("{\"sent\": %lu, \"refused\": %lu, \"seconds\": %.4f}\n", sent, refused, now - begin);
	return 0;
}
