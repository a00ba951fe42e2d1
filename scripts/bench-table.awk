# Lines "value NAME UNIT less|more LIBRARY NUMBER" of bench-guest: medians by library, and how much better ours is.
$1 == "value" {
  if (!($2 in unit)) order[++names] = $2
  unit[$2] = $3; better[$2] = $4
  all[$2, $5, ++count[$2, $5]] = $6 + 0
  next
}
{ print "  " $0 > "/dev/stderr" }
function median(name, library,    n, i, j, t, v) {
  n = count[name, library]
  if (!n) return 0
  for (i = 1; i <= n; i++) v[i] = all[name, library, i]
  for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
  return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
END {
  printf "%-24s %-16s %12s %12s %8s\n", "what", "unit", "ours", "shipped", "ratio"
  for (i = 1; i <= names; i++) {
    name = order[i]; ours = median(name, "ours"); shipped = median(name, "shipped")
    ratio = better[name] == "more" ? (shipped ? ours / shipped : 0) : (ours ? shipped / ours : 0)
    printf "%-24s %-16s %12.2f %12.2f %8.2f\n", name, unit[name], ours, shipped, ratio
  }
}
