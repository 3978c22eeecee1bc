/* strongSwan's `configure` in advance, as far as headers and the plugin kernel-netlink ask: Linux with glibc 2.34 or newer. Functions
 * depend on it, no layout of a structure. */
#define CONFIG_H_INCLUDED 1
#define HAVE_ALLOCA_H 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_CLOSEFROM 1
#define HAVE_CONDATTR_CLOCK_MONOTONIC 1
#define HAVE_EXPLICIT_BZERO 1
#define HAVE_FMEMOPEN 1
#define HAVE_GCC_ATOMIC_OPERATIONS 1
#define HAVE_GETPASS 1
#define HAVE_INT128 1
#define HAVE_LINUX_FIB_RULES_H 1
#define HAVE_MEMRCHR 1
#define HAVE_RTA_TABLE 1
#define HAVE_SIGWAITINFO 1
#define HAVE_STDBOOL_H 1
#define HAVE_STRERROR_R 1
#define HAVE_SYS_PARAM_H 1
#define HAVE__BOOL 1
