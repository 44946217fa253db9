#!/usr/bin/env bash
# nghttp2's nghttp and h2load: nghttp.sh TARGET CA COUNT PAUSE SCENARIO...
target=$1 ca=$2 count=$3
shift 4
url="http://$target"
[[ ! $ca ]] || url="https://$target"

# requests makes requests with h2load, and prints how many succeeded with status 2xx.
requests() {
	local out
	out="$(h2load "$@")"
	sed -n 's/^status codes: \([0-9]*\) 2xx.*/\1/p' <<<"$out"
}

unary() { echo "$(requests -n $((count / 4)) -c 4 -m 25 "$url/hello") hello"; }
up() {
	yes hello | tr -d '\n' | head -c $((5 * count)) >"$scratch"
	echo "$(nghttp -y -d "$scratch" --no-content-length -b 255 "$url/count") bytes"
}
down() { echo "$(nghttp -y "$url/source?$count+5" | wc -c) bytes"; }
big() {
	head -c 8388608 /dev/zero >"$scratch"
	echo "$(nghttp -y -d "$scratch" "$url/count") up, $(nghttp -y "$url/source?1+8388608" | wc -c) down"
}

scratch="$(mktemp)"
trap 'rm -f "$scratch"' EXIT
for scenario; do
	start=$SECONDS
	result="$("$scenario")"
	printf '{"scenario": "%s", "result": "%s", "seconds": %d}\n' "$scenario" "$result" $((SECONDS - start))
done
