/*
 * The packets of the senders here: UDP, 64 bytes unless said otherwise, without the frame's check sequence.
 */
#ifndef PACKET_H
#define PACKET_H

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <string.h>

/* Bytes of a frame, and where its payload begins. */
#define LEN 64
#define PAYLOAD 42

static inline uint16_t checksum(const void *header)
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

/*
 * Writes a packet of so many bytes behind the link-layer header given: from one of the endpoints, which are 16 a host from 10.1.0.0 on, to
 * an address of 198.51.100.0/24 by the number of the flow, port 443.
 */
static inline void write_packet(uint8_t *frame, const uint8_t *header, uint32_t endpoint, uint32_t flow, uint32_t bytes)
{
	memcpy(frame, header, 14);
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = htons((uint16_t)(bytes - 14)),
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
		.len = htons((uint16_t)(bytes - 34)),
	};
	memcpy(frame + 14, &ip, 20);
	memcpy(frame + 34, &udp, 8);
	memset(frame + PAYLOAD, 0x5a, bytes - PAYLOAD);
}

#endif
