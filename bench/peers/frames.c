/*
 * The load of bench/frames, whose packets come as frames of XDP, as from a card's driver: no socket buffer is made of them before the router does so.
 *
 *     frames send INTERFACE DESTINATION_MAC FLOWS SECONDS       as fast as it goes
 *     frames drop INTERFACE                                     says "ready", drops what comes until SIGTERM, then says how many came
 *
 * A program of XDP writes the head of each packet and redirects it to the interface; the kernel runs it on frames of its own
 * (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18). Packets and flows are those of `load send`. What the interface's other end has no
 * room for counts as sent. The sender's core is never idle.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "packet.h"
#include "peer.h"
#include "program.h"

/* What the payload of each packet begins with. */
#define MAGIC 0x77726c65

static volatile sig_atomic_t ended;
static void end(int signal)
{
	(void)signal;
	ended = 1;
}

/* Sixteen bits of the frame in one instruction, from a register in the machine's order. */
#define STORE_BE16(s, o) INSN(BPF_ALU | BPF_END | BPF_TO_BE, s, 0, 0, 16), STORE(BPF_H, 6, s, o)

/*
 * The program that makes a packet of the next flow: r8 is the flow's number, r9 its endpoint's. A frame comes back to it as the router
 * left it, so that the whole head is written each time. `next` has the next flow's number, and how many packets there were.
 */
enum { NEXT, SENT, COUNTERS };
static int sender(int next, const uint8_t *head, uint32_t flows, int interface)
{
	int32_t words[3];
	memcpy(words, head, sizeof words);
	/* The sum of the IPv4 header's words but source and destination. */
	const uint32_t constant = 0x4500 + (LEN - 14) + 0x4000 + IPPROTO_UDP;
	const struct bpf_insn code[] = {
		LOAD(BPF_W, 6, 1, offsetof(struct xdp_md, data)),
		LOAD(BPF_W, 7, 1, offsetof(struct xdp_md, data_end)),
		MOV(2, 6), ALUI(BPF_ADD, 2, LEN),
		JUMP(BPF_JLE, 2, 7, 2), MOVI(0, XDP_ABORTED), EXIT,
		STOREI(BPF_W, 10, -4, 0),
		MOV(2, 10), ALUI(BPF_ADD, 2, -4),
		MAP(1, next),
		CALL(BPF_FUNC_map_lookup_elem),
		JUMPI(BPF_JNE, 0, 0, 2), MOVI(0, XDP_ABORTED), EXIT,
		LOAD(BPF_DW, 8, 0, 8 * NEXT),
		MOV(1, 8), ALUI(BPF_ADD, 1, 1),
		JUMPI(BPF_JLT, 1, (int32_t)flows, 1),
		MOVI(1, 0),
		STORE(BPF_DW, 0, 1, 8 * NEXT),
		LOAD(BPF_DW, 1, 0, 8 * SENT), ALUI(BPF_ADD, 1, 1), STORE(BPF_DW, 0, 1, 8 * SENT),
		MOV(9, 8), ALUI(BPF_RSH, 9, 1),
		/* Link layer, and what is the same in each header. */
		STOREI(BPF_W, 6, 0, words[0]), STOREI(BPF_W, 6, 4, words[1]), STOREI(BPF_W, 6, 8, words[2]), STOREI(BPF_H, 6, 12, htons(0x0800)),
		STOREI(BPF_H, 6, 14, htons(0x4500)), STOREI(BPF_H, 6, 16, htons(LEN - 14)), STOREI(BPF_W, 6, 18, 0),
		STOREI(BPF_H, 6, 22, htons(0x4000 + IPPROTO_UDP)), STOREI(BPF_H, 6, 36, htons(443)), STOREI(BPF_H, 6, 38, htons(LEN - 34)),
		STOREI(BPF_H, 6, 40, 0), STOREI(BPF_W, 6, PAYLOAD, MAGIC),
		/* r1, r2 = the words of the source; r8 = the second one of the destination; r5 = their sum with the rest. */
		MOV(2, 9), ALUI(BPF_RSH, 2, 4), ALUI(BPF_ADD, 2, 0x0a010000),
		MOV(1, 2), ALUI(BPF_RSH, 1, 16), ALUI(BPF_AND, 2, 0xffff),
		ALUI(BPF_MOD, 8, 251), ALUI(BPF_ADD, 8, 0x6401),
		MOV(5, 1), ALU(BPF_ADD, 5, 2), ALU(BPF_ADD, 5, 8), ALUI(BPF_ADD, 5, (int32_t)(constant + 0xc633)),
		STORE_BE16(1, 26), STORE_BE16(2, 28), STORE_BE16(8, 32), STOREI(BPF_H, 6, 30, htons(0xc633)),
		MOV(1, 5), ALUI(BPF_RSH, 1, 16), ALUI(BPF_AND, 5, 0xffff), ALU(BPF_ADD, 5, 1),
		MOV(1, 5), ALUI(BPF_RSH, 1, 16), ALU(BPF_ADD, 5, 1), ALUI(BPF_XOR, 5, 0xffff),
		STORE_BE16(5, 24),
		ALUI(BPF_AND, 9, 15), ALUI(BPF_ADD, 9, 10000), STORE_BE16(9, 34),
		MOVI(1, interface), MOVI(2, 0),
		CALL(BPF_FUNC_redirect),
		EXIT,
	};
	return program(BPF_PROG_TYPE_XDP, code, sizeof code);
}

static int send_frames(char **argv)
{
	uint8_t frame[LEN] = { 0 };
	if (sscanf(argv[1], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", frame, frame + 1, frame + 2, frame + 3, frame + 4, frame + 5) != 6)
		die("not a MAC address");
	uint32_t flows = (uint32_t)strtoul(argv[2], NULL, 10);
	double limit = strtod(argv[3], NULL);
	struct ifreq request = { 0 };
	strncpy(request.ifr_name, argv[0], IFNAMSIZ - 1);
	int any = socket(AF_INET, SOCK_DGRAM, 0);
	if (!flows || any < 0 || ioctl(any, SIOCGIFHWADDR, &request) < 0) {
		perror(argv[0]);
		return 1;
	}
	memcpy(frame + 6, request.ifr_hwaddr.sa_data, 6);
	memset(frame + PAYLOAD, 0x5a, LEN - PAYLOAD);

	/* One call: whenever the kernel begins or ends to run a program of XDP it waits for all its cores, 20 ms and more. */
	int next = array(8 * COUNTERS, 1);
	union bpf_attr attr = { .test = {
		.prog_fd = (uint32_t)sender(next, frame, flows, (int)if_nametoindex(argv[0])),
		.data_in = (uint64_t)frame,
		.data_size_in = sizeof frame,
		.repeat = UINT32_MAX,
		.flags = BPF_F_TEST_XDP_LIVE_FRAMES,
	} };
	struct itimerval timer = { .it_value = { (time_t)limit, (suseconds_t)((limit - (double)(time_t)limit) * 1e6) } };
	setitimer(ITIMER_REAL, &timer, NULL);
	double begin = seconds();
	if (syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof attr) < 0 && errno != EINTR) {
		perror("frames of XDP");
		return 1;
	}
	double took = seconds() - begin;
	uint64_t counters[COUNTERS];
	look_up(next, 0, counters);
	printf("{\"sent\": %lu, \"seconds\": %.4f}\n", counters[SENT], took);
	return 0;
}

/* The program that counts what is ours, and drops it; all else is let through. */
static int dropper(int came)
{
	const struct bpf_insn code[] = {
		LOAD(BPF_W, 6, 1, offsetof(struct xdp_md, data)),
		LOAD(BPF_W, 7, 1, offsetof(struct xdp_md, data_end)),
		MOV(2, 6), ALUI(BPF_ADD, 2, LEN),
		JUMP(BPF_JGT, 2, 7, 13),
		LOAD(BPF_W, 1, 6, PAYLOAD),
		JUMPI(BPF_JNE, 1, MAGIC, 11),
		STOREI(BPF_W, 10, -4, 0),
		MOV(2, 10), ALUI(BPF_ADD, 2, -4),
		MAP(1, came),
		CALL(BPF_FUNC_map_lookup_elem),
		JUMPI(BPF_JEQ, 0, 0, 4),
		COUNT(0, 0),
		MOVI(0, XDP_DROP),
		EXIT,
		MOVI(0, XDP_PASS),
		EXIT,
	};
	return program(BPF_PROG_TYPE_XDP, code, sizeof code);
}

static int drop(char **argv)
{
	int came = array(8, 1);
	union bpf_attr attr = { .link_create = {
		.prog_fd = (uint32_t)dropper(came),
		.target_ifindex = if_nametoindex(argv[0]),
		.attach_type = BPF_XDP,
		.flags = XDP_FLAGS_DRV_MODE,
	} };
	bpf(argv[0], BPF_LINK_CREATE, &attr);
	printf("ready\n");
	fflush(stdout);
	while (!ended)
		usleep(10000);
	uint64_t count;
	look_up(came, 0, &count);
	printf("{\"came\": %lu}\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = end };
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	if (argc == 6 && !strcmp(argv[1], "send"))
		return send_frames(argv + 2);
	if (argc == 3 && !strcmp(argv[1], "drop"))
		return drop(argv + 2);
	die("usage: frames send INTERFACE DESTINATION_MAC FLOWS SECONDS | frames drop INTERFACE");
}
