/* strongSwan plugin `kernel-wirerate`: charon gives its SAs to wirerate, and nothing to Linux's XFRM.
 *
 * It is charon's own plugin kernel-netlink, compiled from strongSwan's source, with its sockets of NETLINK_XFRM led to wirerate's
 * Unix socket by ../xfrm/libwirerate_xfrm.c. The map of exported symbols keeps both to this library: no other call of the process is
 * led anywhere. So charon says the same as with the preload library, and loses as little when wirerate is restarted.
 *
 * It stands in the place of kernel-netlink, addresses and routes included, and is not to be loaded beside it. If it cannot be loaded,
 * charon has no kernel interface, and ends: no SA goes to Linux by mistake.
 */
#include <daemon.h>
#include <kernel/kernel_ipsec.h>
#include <kernel/kernel_net.h>
#include <library.h>
#include <plugins/plugin.h>

#include <kernel_netlink_ipsec.h>
#include <kernel_netlink_net.h>

#include "../xfrm/libwirerate_xfrm.h"

static char *get_name(plugin_t *plugin)
{
	(void)plugin;
	return "kernel-wirerate";
}

static int get_features(plugin_t *plugin, plugin_feature_t *features[])
{
	static plugin_feature_t provided[] = {
		PLUGIN_CALLBACK(kernel_ipsec_register, kernel_netlink_ipsec_create),
			PLUGIN_PROVIDE(CUSTOM, "kernel-ipsec"),
		PLUGIN_CALLBACK(kernel_net_register, kernel_netlink_net_create),
			PLUGIN_PROVIDE(CUSTOM, "kernel-net"),
	};
	(void)plugin;
	*features = provided;
	return countof(provided);
}

static void destroy(plugin_t *plugin)
{
	(void)plugin;
}

/* Looked up by charon, by these names; the version by that of strongSwan 6, which loads no plugin of another. */
const char *kernel_wirerate_plugin_version = STRONGSWAN_VERSION;
plugin_t *kernel_wirerate_plugin_create(void);

plugin_t *kernel_wirerate_plugin_create(void)
{
	static plugin_t plugin = { .get_name = get_name, .get_features = get_features, .destroy = destroy };
	const char *path = lib->settings->get_str(lib->settings, "%s.plugins.kernel-wirerate.socket", "/run/wirerate/xfrm", lib->ns);

	/* Of routes and of the policies by which IKE itself goes past all tunnels. */
	if (!lib->caps->keep(lib->caps, CAP_NET_ADMIN))
		DBG1(DBG_KNL, "kernel-wirerate: CAP_NET_ADMIN is needed for routes and addresses");
	if (!wirerate_xfrm_at(path)) {
		DBG1(DBG_KNL, "kernel-wirerate: the path of the socket is too long: %s", path);
		return NULL;
	}
	DBG1(DBG_KNL, "kernel-wirerate: SAs and policies go to %s", path);
	return &plugin;
}
