#!/usr/bin/env bash
# curl: curl.sh TARGET CA COUNT PAUSE SCENARIO...
target=$1 ca=$2 count=$3 pause=$4
shift 4

options=(--silent --show-error) url="http://$target"
if [[ $ca ]]; then
	options+=(--http2 --cacert "$ca") url="https://$target"
else
	options+=(--http2-prior-knowledge)
fi
if [[ $target == unix:* ]]; then
	options+=(--unix-socket "${target#unix:}") url=http://localhost
fi
get() { curl "${options[@]}" "$@"; }

unary() { # over TLS: in clear 7.88 makes the first request only
	get "$url/hello?[1-$((count / 4))]" | fold -w 5 | sort | uniq -c | sed 's/^ *//'
}
up() { echo "$(yes hello | tr -d '\n' | head -c $((5 * count)) | get -T - "$url/count") bytes"; }
down() { echo "$(get "$url/source?$count+5" | wc -c) bytes"; }
slow() { # as many bytes a second as take ten pauses
	local rate
	rate=$(awk "BEGIN { print int(8388608 / 10 / $pause) }")
	echo "$(get --limit-rate "$rate" "$url/source?512+16384" | wc -c) bytes"
}
deadline() {
	for _ in {1..10}; do
		for _ in {1..10}; do
			get --max-time 0.1 "$url/wait" 2>/dev/null || [[ $? == 28 ]] && echo late &
		done
		wait
	done >"$scratch"
	echo "1 $(get "$url/hello"), $(wc -l <"$scratch") late"
}
big() {
	head -c 8388608 /dev/zero >"$scratch"
	echo "$(get -T "$scratch" "$url/count") up, $(get "$url/source?1+8388608" | wc -c) down"
}

scratch="$(mktemp)"
trap 'rm -f "$scratch"' EXIT
for scenario; do
	start=$SECONDS
	result="$("$scenario")"
	printf '{"scenario": "%s", "result": "%s", "seconds": %d}\n' "$scenario" "$result" $((SECONDS - start))
done
