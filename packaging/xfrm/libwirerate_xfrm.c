/* Preload library: sockets of NETLINK_XFRM lead to wirerate.
 *
 * For IKE daemons and `ip xfrm`, unmodified, where wirerate carries ESP in the kernel's place. A netlink socket becomes one end of a
 * pair; a thread passes messages between the other end and wirerate's Unix socket ($WIRERATE_XFRM, else /run/wirerate/xfrm), which
 * speaks the same messages.
 *
 * wirerate may be restarted. Then connections are made again, with their groups of events; requests wait some seconds for it, and
 * fail afterwards. What the daemon does not know to be lost is asked for again: policies are installed anew from a journal, and for
 * each inbound SA that wirerate lacks the daemon is told that its soft lifetime is over, so that it negotiates another. The journal
 * holds no keys. So SAs never go on with old keys: no number is used twice under one.
 *
 *     cc -shared -fPIC -O2 -o libwirerate_xfrm.so libwirerate_xfrm.c -ldl -lpthread
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/xfrm.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libwirerate_xfrm.h"

enum {
	DESCRIPTORS = 65536, /* Descriptors that are told apart. */
	LARGEST = 65536,     /* Largest datagram. */
	PATIENCE = 5000,     /* Milliseconds for which requests wait for wirerate. */
	RETRY = 200,         /* Milliseconds between attempts to connect. */
	SUBSCRIBE = 15,      /* Type of the message that asks for groups of events. */
};

/* The C library's own. */
#define REAL(name)                                                 \
	static __typeof__(&name) real;                             \
	if (!real)                                                 \
		real = (__typeof__(real))dlsym(RTLD_NEXT, #name)

/* Message that waits until its receiver takes it. */
struct held {
	unsigned char *bytes;
	size_t length;
};

/* Connection of one socket of the process. */
struct link {
	int process;        /* Our end of the pair. */
	int server;         /* To wirerate; -1 while there is none. */
	long long since;    /* Time in milliseconds at which there was none. */
	uint32_t groups;    /* Groups of events that were asked for. */
	struct held up;     /* For wirerate. */
	struct held down;   /* For the process. */
	struct nlmsghdr asked; /* Request without its answer yet; type 0 if none. */
	struct link *next;
};

/* SA that the process has installed: what an EXPIRE tells of it. */
struct sa {
	struct xfrm_usersa_info info;
	struct sa *next;
};

/* Policy that the process has installed: its message. */
struct policy {
	struct policy *next;
	struct nlmsghdr message[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char ours[DESCRIPTORS];
static struct link *added; /* New connections, for the thread. */
static int wake = -1;
static struct sockaddr_un server; /* Of family 0: as the environment says. */

/* The thread's own from here on. */
static struct link *links;
static struct sa *sas;
static struct policy *policies;
static bool lost; /* A connection has ended: wirerate may have forgotten all. */
static unsigned char buffer[LARGEST];

static bool is_ours(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS && ours[fd];
}

static long long now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000LL + at.tv_nsec / 1000000;
}

bool wirerate_xfrm_at(const char *path)
{
	if (strlen(path) >= sizeof server.sun_path)
		return false;
	server = (struct sockaddr_un){ .sun_family = AF_UNIX };
	strcpy(server.sun_path, path);
	return true;
}

static int connect_server(void)
{
	int fd;
	if (!server.sun_family) {
		const char *path = getenv("WIRERATE_XFRM");
		if (!wirerate_xfrm_at(path && *path ? path : "/run/wirerate/xfrm"))
			return -1;
	}
	REAL(socket);
	fd = real(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&server, sizeof server)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* ---- Journal ---------------------------------------------------------------------------------- */

/* Value of an attribute behind `fixed` bytes of a message, or a null pointer. */
static const void *attribute(const struct nlmsghdr *message, size_t fixed, unsigned short kind, size_t length)
{
	size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(fixed);
	while (at + sizeof(struct nlattr) <= message->nlmsg_len) {
		const struct nlattr *here = (const void *)((const char *)message + at);
		if (here->nla_len < sizeof *here || at + here->nla_len > message->nlmsg_len)
			return NULL;
		if ((here->nla_type & NLA_TYPE_MASK) == kind)
			return here->nla_len >= sizeof *here + length ? here + 1 : NULL;
		at += NLA_ALIGN(here->nla_len);
	}
	return NULL;
}

/* True if an attribute is the same in both messages, or in neither. */
static bool same_attribute(const struct nlmsghdr *a, size_t fixed_a, const struct nlmsghdr *b, size_t fixed_b,
                           unsigned short kind, size_t length)
{
	static const unsigned char none[sizeof(struct xfrm_mark)];
	const void *of_a = attribute(a, fixed_a, kind, length), *of_b = attribute(b, fixed_b, kind, length);
	return !memcmp(of_a ? of_a : none, of_b ? of_b : none, length);
}

static void forget_sa(const xfrm_address_t *destination, __be32 spi, __u8 protocol)
{
	for (struct sa **at = &sas; *at; at = &(*at)->next) {
		struct sa *sa = *at;
		if (sa->info.id.spi == spi && sa->info.id.proto == protocol &&
		    !memcmp(&sa->info.id.daddr, destination, sizeof *destination)) {
			*at = sa->next;
			free(sa);
			return;
		}
	}
}

/* Forgets the policy that a message with selector, direction, mark and interface means. */
static void forget_policy(const struct nlmsghdr *message, size_t fixed, __u8 direction)
{
	const struct xfrm_selector *selector = NLMSG_DATA(message);
	for (struct policy **at = &policies; *at; at = &(*at)->next) {
		struct policy *policy = *at;
		const struct xfrm_userpolicy_info *info = NLMSG_DATA(policy->message);
		if (info->dir == direction && !memcmp(&info->sel, selector, sizeof *selector) &&
		    same_attribute(policy->message, sizeof *info, message, fixed, XFRMA_MARK, sizeof(struct xfrm_mark)) &&
		    same_attribute(policy->message, sizeof *info, message, fixed, XFRMA_IF_ID, sizeof(__u32))) {
			*at = policy->next;
			free(policy);
			return;
		}
	}
}

static void forget_all_sas(void)
{
	while (sas) {
		struct sa *next = sas->next;
		free(sas);
		sas = next;
	}
}

static void forget_all_policies(void)
{
	while (policies) {
		struct policy *next = policies->next;
		free(policies);
		policies = next;
	}
}

/* Takes down what a request of the process changes. A refused one costs a needless question later. */
static void note(const struct nlmsghdr *message)
{
	size_t body = message->nlmsg_len - NLMSG_HDRLEN;
	const void *data = NLMSG_DATA(message);
	switch (message->nlmsg_type) {
	case XFRM_MSG_UPDSA: { /* Inbound ones only: daemons fill the SPI that they allocated. One for each pair is enough. */
		const struct xfrm_usersa_info *info = data;
		struct sa *sa;
		if (body < sizeof *info || !(sa = malloc(sizeof *sa)))
			return;
		forget_sa(&info->id.daddr, info->id.spi, info->id.proto);
		*sa = (struct sa){ *info, sas };
		sas = sa;
		return;
	}
	case XFRM_MSG_DELSA: {
		const struct xfrm_usersa_id *id = data;
		if (body >= sizeof *id)
			forget_sa(&id->daddr, id->spi, id->proto);
		return;
	}
	case XFRM_MSG_FLUSHSA:
		forget_all_sas();
		return;
	case XFRM_MSG_NEWPOLICY:
	case XFRM_MSG_UPDPOLICY: {
		const struct xfrm_userpolicy_info *info = data;
		struct policy *policy;
		if (body < sizeof *info || !(policy = malloc(sizeof *policy + message->nlmsg_len)))
			return;
		forget_policy(message, sizeof *info, info->dir);
		memcpy(policy->message, message, message->nlmsg_len);
		policy->next = policies;
		policies = policy;
		return;
	}
	case XFRM_MSG_DELPOLICY: {
		const struct xfrm_userpolicy_id *id = data;
		if (body >= sizeof *id)
			forget_policy(message, sizeof *id, id->dir);
		return;
	}
	case XFRM_MSG_FLUSHPOLICY:
		forget_all_policies();
		return;
	}
}

/* Sends a request and waits for its answer; returns the answer's type, or 0 if there is none. */
static int ask(int fd, struct nlmsghdr *message)
{
	static uint32_t sequence;
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	struct nlmsghdr answer;
	message->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	message->nlmsg_seq = ++sequence;
	if (send(fd, message, message->nlmsg_len, MSG_NOSIGNAL) < 0)
		return 0;
	while (poll(&readable, 1, PATIENCE) == 1 && recv(fd, &answer, sizeof answer, MSG_TRUNC) >= (ssize_t)sizeof answer)
		if (answer.nlmsg_seq == sequence)
			return answer.nlmsg_type;
	return 0;
}

/* Installs the policies anew, and has the daemon negotiate the SAs that wirerate lacks. */
static bool restore(void)
{
	int fd = connect_server();
	bool done = fd >= 0;
	for (struct policy *policy = policies; done && policy; policy = policy->next) {
		policy->message->nlmsg_type = XFRM_MSG_UPDPOLICY;
		done = ask(fd, policy->message) != 0;
	}
	for (struct sa *sa = sas; done && sa; sa = sa->next) {
		struct { struct nlmsghdr header; struct xfrm_usersa_id id; } get = {
			.header = { .nlmsg_len = sizeof get, .nlmsg_type = XFRM_MSG_GETSA },
			.id = { sa->info.id.daddr, sa->info.id.spi, sa->info.family, sa->info.id.proto },
		};
		struct { struct nlmsghdr header; struct xfrm_user_expire expire; } gone = {
			.header = { .nlmsg_len = sizeof gone, .nlmsg_type = XFRM_MSG_EXPIRE },
			.expire = { .state = sa->info, .hard = 0 },
		};
		int answer = ask(fd, &get.header);
		done = answer == XFRM_MSG_NEWSA || (answer && ask(fd, &gone.header));
	}
	if (fd >= 0)
		close(fd);
	return done;
}

/* ---- Thread that passes messages -------------------------------------------------------------- */

static void drop(struct held *held)
{
	if (held->bytes) {
		explicit_bzero(held->bytes, held->length);
		free(held->bytes);
	}
	*held = (struct held){ NULL, 0 };
}

static void hold(struct held *held, const void *bytes, size_t length)
{
	drop(held);
	if ((held->bytes = malloc(length))) {
		memcpy(held->bytes, bytes, length);
		held->length = length;
	}
}

/* Sends what is held. False if the connection has ended. */
static bool pass(int fd, struct held *held)
{
	if (!held->bytes)
		return true;
	if (send(fd, held->bytes, held->length, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
		drop(held);
		return true;
	}
	return errno == EAGAIN || errno == EINTR;
}

/* Answers the request that waits, in wirerate's place. */
static void refuse(struct link *link, const struct nlmsghdr *request, int error)
{
	struct { struct nlmsghdr header; struct nlmsgerr body; } answer = {
		.header = { sizeof answer, NLMSG_ERROR, NLM_F_CAPPED, request->nlmsg_seq, request->nlmsg_pid },
		.body = { -error, *request },
	};
	if (!link->down.bytes)
		hold(&link->down, &answer, sizeof answer);
	link->asked.nlmsg_type = 0;
}

static void disconnected(struct link *link)
{
	if (link->server >= 0)
		close(link->server);
	link->server = -1;
	link->since = now();
	lost = true;
	/* Whether it was carried out is not known: an error has the daemon begin again. */
	if (link->asked.nlmsg_type)
		refuse(link, &link->asked, ECONNRESET);
}

static bool subscribe(struct link *link)
{
	struct { struct nlmsghdr header; uint32_t groups; } wanted = {
		{ sizeof wanted, SUBSCRIBE, NLM_F_REQUEST, 0, 0 }, link->groups
	};
	return !link->groups || send(link->server, &wanted, sizeof wanted, MSG_NOSIGNAL) >= 0;
}

static void reconnect(struct link *link)
{
	link->server = connect_server();
	if (link->server >= 0 && !subscribe(link)) {
		close(link->server);
		link->server = -1;
	}
}

/* Takes a message of the process. False if the process has closed its end. */
static bool from_process(struct link *link)
{
	ssize_t length = recv(link->process, buffer, sizeof buffer, MSG_DONTWAIT);
	if (length <= 0)
		return length < 0 && (errno == EAGAIN || errno == EINTR);
	hold(&link->up, buffer, length);
	explicit_bzero(buffer, length);
	return true;
}

static void from_server(struct link *link)
{
	ssize_t length = recv(link->server, buffer, sizeof buffer, MSG_DONTWAIT);
	const struct nlmsghdr *header = (const void *)buffer;
	if (length <= 0) {
		if (length == 0 || (errno != EAGAIN && errno != EINTR))
			disconnected(link);
		return;
	}
	if (length >= NLMSG_HDRLEN && header->nlmsg_seq == link->asked.nlmsg_seq &&
	    (!(header->nlmsg_flags & NLM_F_MULTI) || header->nlmsg_type == NLMSG_DONE))
		link->asked.nlmsg_type = 0;
	hold(&link->down, buffer, length);
	explicit_bzero(buffer, length);
}

/* Passes the held request on, or refuses it when wirerate has been away for long. */
static void up(struct link *link)
{
	struct nlmsghdr request;
	if (!link->up.bytes)
		return;
	if (link->up.length < sizeof request) {
		drop(&link->up);
		return;
	}
	memcpy(&request, link->up.bytes, sizeof request);
	if (request.nlmsg_len < sizeof request || request.nlmsg_len > link->up.length) {
		drop(&link->up);
		return;
	}
	if (request.nlmsg_type == SUBSCRIBE) {
		uint32_t wanted = 0;
		if (request.nlmsg_len >= sizeof request + sizeof wanted)
			memcpy(&wanted, link->up.bytes + sizeof request, sizeof wanted);
		link->groups |= wanted;
		drop(&link->up);
		if (link->server >= 0 && !subscribe(link))
			disconnected(link);
		return;
	}
	if (link->server >= 0) {
		if (send(link->server, link->up.bytes, link->up.length, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
			note((const struct nlmsghdr *)link->up.bytes);
			link->asked = request;
			drop(&link->up);
			return;
		}
		if (errno == EAGAIN || errno == EINTR)
			return;
		disconnected(link);
	}
	/* What goes away succeeds with wirerate, which has it no more. */
	if (now() - link->since >= PATIENCE && !link->down.bytes) {
		note((const struct nlmsghdr *)link->up.bytes);
		refuse(link, &request, ECONNREFUSED);
		drop(&link->up);
	}
}

static void end(struct link *link)
{
	close(link->process);
	if (link->server >= 0)
		close(link->server);
	drop(&link->up);
	drop(&link->down);
	free(link);
}

/* Takes new connections over, and the groups that were asked for. */
static void take_added(void)
{
	uint64_t count;
	if (read(wake, &count, sizeof count) < 0 && errno != EAGAIN)
		return;
	pthread_mutex_lock(&lock);
	while (added) {
		struct link *link = added;
		added = link->next;
		link->next = links;
		links = link;
		reconnect(link);
		if (link->server < 0)
			disconnected(link);
	}
	pthread_mutex_unlock(&lock);
}

static void *run(void *unused)
{
	struct pollfd *polled = NULL;
	size_t room = 0;
	(void)unused;
	for (;;) {
		size_t count = 0, at = 1;
		bool away = false;
		for (struct link *link = links; link; link = link->next)
			count += 2;
		if (count + 1 > room) {
			struct pollfd *larger = realloc(polled, (count + 1) * sizeof *polled);
			if (!larger)
				continue;
			polled = larger;
			room = count + 1;
		}
		polled[0] = (struct pollfd){ .fd = wake, .events = POLLIN };
		for (struct link *link = links; link; link = link->next) {
			/* While something is held for an end, no more is taken for it. */
			short process = (link->up.bytes ? 0 : POLLIN) | (link->down.bytes ? POLLOUT : 0);
			short server = (link->down.bytes ? 0 : POLLIN) | (link->up.bytes ? POLLOUT : 0);
			polled[at++] = (struct pollfd){ .fd = link->process, .events = process };
			polled[at++] = (struct pollfd){ .fd = link->server, .events = server };
			away = away || link->server < 0;
		}
		if (poll(polled, at, away || lost ? RETRY : -1) < 0 && errno != EINTR)
			continue;
		if (polled[0].revents)
			take_added();
		at = 1;
		for (struct link **here = &links; *here && at < count;) {
			struct link *link = *here;
			/* Those just taken over stand in front, and are not among the polled. */
			if (link->process != polled[at].fd) {
				here = &link->next;
				continue;
			}
			short process = polled[at++].revents, server = polled[at++].revents;
			if (process && !link->up.bytes && !from_process(link)) {
				*here = link->next;
				end(link);
				continue;
			}
			if (link->server >= 0 && server && !link->down.bytes)
				from_server(link);
			if (link->server < 0)
				reconnect(link);
			up(link);
			if (!pass(link->process, &link->down)) {
				*here = link->next;
				end(link);
				continue;
			}
			here = &link->next;
		}
		away = false;
		for (struct link *link = links; link; link = link->next)
			away = away || link->server < 0;
		if (lost && !away && links)
			lost = !restore();
	}
	return NULL;
}

static bool start(void)
{
	static bool started;
	sigset_t all, before;
	pthread_t thread;
	if (started)
		return true;
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake < 0)
		return false;
	/* Signals are the process's own business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = !pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

/* ---- Calls of the process ---------------------------------------------------------------------- */

static int open_link(int type)
{
	const uint64_t one = 1;
	int pair[2];
	struct link *link = calloc(1, sizeof *link);
	if (!link || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		free(link);
		errno = ENOBUFS;
		return -1;
	}
	if (!(type & SOCK_CLOEXEC))
		fcntl(pair[0], F_SETFD, 0);
	if (type & SOCK_NONBLOCK)
		fcntl(pair[0], F_SETFL, O_NONBLOCK);
	*link = (struct link){ .process = pair[1], .server = -1 };
	pthread_mutex_lock(&lock);
	bool taken = pair[0] < DESCRIPTORS && start();
	if (taken) {
		link->next = added;
		added = link;
		ours[pair[0]] = 1;
		taken = write(wake, &one, sizeof one) == sizeof one;
	}
	pthread_mutex_unlock(&lock);
	if (!taken) {
		close(pair[0]);
		errno = ENOBUFS;
		return -1;
	}
	return pair[0];
}

int socket(int domain, int type, int protocol)
{
	REAL(socket);
	if (domain == AF_NETLINK && protocol == NETLINK_XFRM)
		return open_link(type);
	int fd = real(domain, type, protocol);
	if (is_ours(fd)) /* Its number was ours, and was closed unseen. */
		ours[fd] = 0;
	return fd;
}

int close(int fd)
{
	REAL(close);
	if (is_ours(fd))
		ours[fd] = 0;
	return real(fd);
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	REAL(bind);
	if (!is_ours(fd))
		return real(fd, address, length);
	const struct sockaddr_nl *netlink = (const void *)address;
	struct { struct nlmsghdr header; uint32_t groups; } wanted = {
		{ sizeof wanted, SUBSCRIBE, NLM_F_REQUEST, 0, 0 }, length >= sizeof *netlink ? netlink->nl_groups : 0
	};
	return wanted.groups && send(fd, &wanted, sizeof wanted, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* Every address is the kernel's: port 0, no groups. */
static void kernels(void *address, socklen_t *length)
{
	const struct sockaddr_nl netlink = { .nl_family = AF_NETLINK };
	if (!address || !length)
		return;
	memcpy(address, &netlink, *length < sizeof netlink ? *length : sizeof netlink);
	*length = sizeof netlink;
}

int getsockname(int fd, struct sockaddr *address, socklen_t *length)
{
	REAL(getsockname);
	if (!is_ours(fd))
		return real(fd, address, length);
	kernels(address, length);
	return 0;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	REAL(setsockopt);
	if (!is_ours(fd) || level != SOL_NETLINK)
		return real(fd, level, name, value, length);
	if (name == NETLINK_ADD_MEMBERSHIP && length >= sizeof(int)) {
		int group;
		memcpy(&group, value, sizeof group);
		struct sockaddr_nl netlink = { .nl_family = AF_NETLINK };
		if (group < 1 || group > 32) {
			errno = EINVAL;
			return -1;
		}
		netlink.nl_groups = 1U << (group - 1);
		return bind(fd, (struct sockaddr *)&netlink, sizeof netlink);
	}
	return 0;
}

ssize_t sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to, socklen_t size)
{
	REAL(sendto);
	return is_ours(fd) ? real(fd, bytes, length, flags | MSG_NOSIGNAL, NULL, 0) : real(fd, bytes, length, flags, to, size);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	REAL(sendmsg);
	if (!is_ours(fd))
		return real(fd, message, flags);
	struct msghdr bare = *message;
	bare.msg_name = NULL;
	bare.msg_namelen = 0;
	return real(fd, &bare, flags | MSG_NOSIGNAL);
}

ssize_t recvfrom(int fd, void *bytes, size_t length, int flags, struct sockaddr *from, socklen_t *size)
{
	REAL(recvfrom);
	if (!is_ours(fd))
		return real(fd, bytes, length, flags, from, size);
	ssize_t received = real(fd, bytes, length, flags, NULL, NULL);
	if (received >= 0)
		kernels(from, size);
	return received;
}

/* As programs call it that are built with _FORTIFY_SOURCE. */
ssize_t __recvfrom_chk(int fd, void *bytes, size_t length, size_t room, int flags, struct sockaddr *from, socklen_t *size)
{
	if (length > room)
		abort();
	return recvfrom(fd, bytes, length, flags, from, size);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	REAL(recvmsg);
	if (!is_ours(fd))
		return real(fd, message, flags);
	void *name = message->msg_name;
	socklen_t size = message->msg_namelen;
	message->msg_name = NULL;
	message->msg_namelen = 0;
	ssize_t received = real(fd, message, flags);
	message->msg_name = name;
	message->msg_namelen = size;
	if (received >= 0)
		kernels(name, &message->msg_namelen);
	return received;
}
