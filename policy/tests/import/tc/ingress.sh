tc qdisc add dev eth0 handle ffff: ingress
tc filter add dev eth0 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0
tc qdisc add dev ifb0 root handle 2: tbf rate 50mbit burst 20kb latency 50ms
tc qdisc add dev eth0 root handle 1: htb default 2
tc class add dev eth0 parent 1: classid 1:1 htb rate 10mbit
tc class add dev eth0 parent 1:1 classid 1:2 htb rate 8mbit ceil 10mbit
tc class add dev eth0 parent 1:1 classid 1:3 htb rate 2mbit ceil 10mbit
tc filter add dev eth0 parent 1: protocol ip u32 match ip dport 53 0xffff flowid 1:3
tc filter add dev eth0 parent 1: protocol ip u32 match ip dport 5353 0xffff flowid 1:2
