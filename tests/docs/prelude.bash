# Functions of the shell of a page: services, by their ports.
declare -A begun_=()

end() {
    if [ -n "${begun_[$1]:-}" ]; then
        kill "${begun_[$1]}" 2>/dev/null || true
        wait "${begun_[$1]}" || true
        unset "begun_[$1]"
    fi
}

begun() {
    begun_[$1]=$2
    local try
    for try in {1..1200}; do
        ! curl -fs -o /dev/null "http://127.0.0.1:$1/readyz" || return 0
        kill -0 "$2" 2>/dev/null || { echo "the service has ended" >&2; return 1; }
        sleep 0.05
    done
    echo "the service is not ready" >&2
    return 1
}

end_all() {
    local port
    for port in "${!begun_[@]}"; do end "$port"; done
}

# A virtual environment that holds nothing: what commands need is on the path already.
python3() {
    case "${1:-} ${2:-}" in
        "-m venv") mkdir -p "$3/bin" && : >"$3/bin/activate" ;;
        "-m pip") pip "${@:3}" ;;
        *) command python3 "$@" ;;
    esac
}
python() { python3 "$@"; }
