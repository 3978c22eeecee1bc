#!/bin/sh
# An office's uplink of 20 Mbit/s: voice first, servers and browsing guaranteed, the rest by what is left.
DEV=eth0
LIMIT=100
tc qdisc del dev $DEV root 2>/dev/null
tc qdisc add dev $DEV root handle 1: htb default 30
tc class add dev $DEV parent 1: classid 1:1 htb rate 20mbit ceil 20mbit burst 15k
tc class add dev $DEV parent 1:1 classid 1:10 htb rate 2mbit ceil 4mbit prio 0
tc class add dev $DEV parent 1:1 classid 1:20 htb rate 10mbit ceil 20mbit prio 1 quantum 3000
tc class add dev $DEV parent 1:20 classid 1:21 htb rate 4mbit ceil 20mbit prio 1
tc class add dev $DEV parent 1:20 classid 1:22 htb rate 6mbit ceil 15mbit prio 1
tc class add dev $DEV parent 1:1 classid 1:30 htb rate 7500bps ceil 20mbit prio 2
tc qdisc add dev $DEV parent 1:10 handle 10: pfifo limit $LIMIT
tc qdisc add dev $DEV parent 1:30 handle abc: bfifo limit 64kb
tc filter add dev $DEV parent 1: protocol ip prio 1 u32 match ip tos 0xb8 0xfc flowid 1:10
tc filter add dev $DEV parent 1: protocol ip prio 2 u32 match ip protocol 6 0xff match ip dport 80 0xffff flowid 1:21
tc filter add dev $DEV parent 1: protocol ip prio 2 u32 match ip protocol 6 0xff match ip dport 443 0xffff flowid 1:21
tc filter add dev $DEV parent 1: protocol ip prio 3 u32 match ip src 192.168.1.128/25 flowid 1:22
tc filter add dev $DEV parent 1: protocol ipv6 prio 4 u32 \
    match ip6 src 2001:db8:0:1::/64 match ip6 protocol 17 0xff flowid 1:22
