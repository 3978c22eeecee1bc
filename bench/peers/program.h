/*
 * Programs of BPF, as the loads here write them: instructions, maps, and the system call.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INSN(c, d, s, o, i) ((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define MOVI(d, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ALUI(op, d, i) INSN(BPF_ALU64 | (op) | BPF_K, d, 0, 0, i)
#define ALU(op, d, s) INSN(BPF_ALU64 | (op) | BPF_X, d, s, 0, 0)
#define LOAD(size, d, s, o) INSN(BPF_LDX | (size) | BPF_MEM, d, s, o, 0)
#define STORE(size, d, s, o) INSN(BPF_STX | (size) | BPF_MEM, d, s, o, 0)
#define STOREI(size, d, o, i) INSN(BPF_ST | (size) | BPF_MEM, d, 0, o, i)
#define JUMPI(op, d, i, o) INSN(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define JUMP(op, d, s, o) INSN(BPF_JMP | (op) | BPF_X, d, s, o, 0)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define COUNT(d, o) MOVI(1, 1), INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, 1, o, BPF_ADD)
#define MAP(d, fd) INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)

static inline int bpf(const char *what, int command, union bpf_attr *attr)
{
	int result = (int)syscall(SYS_bpf, command, attr, sizeof *attr);
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

static inline int array(uint32_t value, uint32_t entries)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = value, .max_entries = entries };
	return bpf("a BPF map", BPF_MAP_CREATE, &attr);
}

static inline void look_up(int map, uint32_t key, void *value)
{
	union bpf_attr attr = { .map_fd = (uint32_t)map, .key = (uint64_t)&key, .value = (uint64_t)value };
	bpf("reading a BPF map", BPF_MAP_LOOKUP_ELEM, &attr);
}

/* Loads a program of so many bytes. */
static inline int program(uint32_t type, const struct bpf_insn *code, size_t bytes)
{
	static char log[1 << 16];
	union bpf_attr attr = {
		.prog_type = type,
		.insns = (uint64_t)code,
		.insn_cnt = (uint32_t)(bytes / sizeof *code),
		.license = (uint64_t)"GPL",
	};
	int loaded = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr);
	if (loaded >= 0)
		return loaded;
	/* Once more, with what the verifier says. */
	attr.log_level = 1;
	attr.log_buf = (uint64_t)log;
	attr.log_size = sizeof log;
	syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr);
	fprintf(stderr, "a BPF program is refused:\n%s", log);
	exit(1);
}

#endif
