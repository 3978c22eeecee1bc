#!/usr/bin/env bash
# Linux's own forwarding and masquerading over veth, with the load of `wirerate bench forward`, one direction.
#
#     kernel.sh SEND [SECONDS [FLOWS...]]
#
# SEND is the program built from send.c. Three network namespaces are made, and taken away whatever happens:
# one that sends, one that routes, one that counts and drops. All that a packet costs, its sending too, is
# paid by the core that sends; so the rate of sending alone, into a drop at the router's first interface, is
# measured as well, and `router` is what is left for the router: 1 / (1 / rate - 1 / rate of sending alone).
# Prints one line of JSON, millions of packets a second. Exit code 77: not possible here; the reason is on
# standard error.
set -euo pipefail
send=$1 seconds=${2:-1}
shift $(($# < 2 ? $# : 2))
flows=("$@")
[ ${#flows[@]} -gt 0 ] || flows=(1000 100000)

skip() {
    echo "SKIPPED: the kernel as a peer: $*" >&2
    exit 77
}
[ "$(id -u)" = 0 ] || skip "needs root, for network namespaces"
command -v ip >/dev/null || skip "no ip (Debian: iproute2)"

from=wr-from-$$ router=wr-router-$$ to=wr-to-$$
# shellcheck disable=SC2317 # the trap calls it
clean() { for space in $from $router $to; do ip netns del "$space" 2>/dev/null || true; done; }
trap clean EXIT
for space in $from $router $to; do ip netns add "$space" || skip "no network namespaces"; done

in_router() { ip netns exec $router "$@"; }
link() { # space name address peer-space peer-name peer-address
    ip -n "$1" link add name "$2" address "$3" type veth peer name "$5" address "$6" netns "$4" || skip "no veth"
    ip -n "$1" link set "$2" up
    ip -n "$4" link set "$5" up
}
link $from out 02:00:00:00:00:09 $router lan 02:00:00:00:00:01
link $router wan 02:00:00:00:00:02 $to in 02:00:00:00:00:0a
for space in $from $router $to; do
    ip netns exec $space sh -c 'for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done' 2>/dev/null || true
done
ip -n $router address add 10.0.0.1/24 dev lan
ip -n $router address add 203.0.113.2/24 dev wan
ip -n $router route add default via 203.0.113.1
ip -n $router route add 10.0.0.0/8 via 10.0.0.2
ip -n $router neighbour add 203.0.113.1 lladdr 02:00:00:00:00:0a dev wan
ip -n $router neighbour add 10.0.0.2 lladdr 02:00:00:00:00:09 dev lan
in_router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done'

# Drops what comes in by an interface as early as nftables can.
drop_at() { # space interface
    ip netns exec "$1" nft "table netdev early { chain in { type filter hook ingress device $2 priority -500; drop; }; }"
}
command -v nft >/dev/null || skip "no nft (Debian: nftables)"
drop_at $to in || skip "nftables has no ingress hook"

counted() { ip netns exec $to cat /sys/class/net/in/statistics/rx_packets; }
load() { ip netns exec $from "$send" out 02:00:00:00:00:01 "$@"; }
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }

# Millions of packets a second that come out of the router.
rate() { # flows
    local before said
    load "$1" 0 once >/dev/null
    before=$(counted)
    said=$(load "$1" "$seconds")
    awk -v n=$(($(counted) - before)) -v s="$(field seconds <<<"$said")" 'BEGIN { printf "%.4f", n / s / 1e6 }'
}

drop_at $router lan
said=$(load 1000 "$seconds")
alone=$(awk -v n="$(field sent <<<"$said")" -v s="$(field seconds <<<"$said")" 'BEGIN { printf "%.4f", n / s / 1e6 }')
in_router nft delete table netdev early
report="\"send_alone\": $alone"
add() { # name rate
    report+=$(awk -v name="$1" -v r="$2" -v a="$alone" \
        'BEGIN { printf ", \"%s\": %s, \"%s_router\": %.4f", name, r, name, (r > 0 && r < a) ? 1 / (1 / r - 1 / a) : r }')
}
for count in "${flows[@]}"; do add "forward_$count" "$(rate "$count")"; done

in_router nft 'table ip nat { chain out { type nat hook postrouting priority srcnat; oifname "wan" masquerade; }; }' ||
    skip "nftables cannot masquerade"
most=$(in_router cat /proc/sys/net/netfilter/nf_conntrack_max 2>/dev/null || echo 0)
for count in "${flows[@]}"; do
    if [ "$most" -lt "$count" ]; then
        echo "SKIPPED: $count flows masqueraded: nf_conntrack_max is $most" >&2
        continue
    fi
    add "masquerade_$count" "$(rate "$count")"
    # Known only now, so that a table that silently refused flows is not taken for a fast one.
    live=$(in_router cat /proc/sys/net/netfilter/nf_conntrack_count)
    [ "$live" -ge "$count" ] || echo "note: $live of $count flows are in the kernel's table" >&2
done
echo "{$report}"
