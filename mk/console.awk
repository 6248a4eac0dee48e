# Puts the page's modules together as one, each behind those that it imports: awk -v folder=DIR -f mk/console.awk
# Knows the forms of import and export that these modules have, and refuses others.

function wrong(file, line) {
    print "mk/console.awk: what is this in " folder "/" file "? " line >"/dev/stderr"
    exit 1
}

function variable(file) {
    sub(/\.js$/, "", file)
    return "module_" file
}

# The names from `got` on are its own.
function put(file, got, line, text, names, name) {
    if (done[file]++) return
    while ((got = (getline line <(folder "/" file))) > 0) {
        if (line ~ /^import/) {
            if (line !~ /^import (\{ [$A-Za-z_]+(, [$A-Za-z_]+)* \}|\* as [a-z]+) from "\.\/[a-z]+\.js";$/) wrong(file, line)
            name = line
            gsub(/.*"\.\/|";$/, "", name)
            put(name)
            sub(/^import (\* as )?/, "const ", line)
            sub(/ from .*/, " = " variable(name) ";", line)
        } else if (line ~ /^export/) {
            if (!match(line, /^export (const|class|(async )?function) [$A-Za-z_]+/)) wrong(file, line)
            name = substr(line, 1, RLENGTH)
            sub(/.* /, "", name)
            names = names " " name ","
            sub(/^export /, "", line)
        } else if (line ~ /<\/?script|<!--/) {
            wrong(file, line) # it would end there for the document
        }
        text = text line "\n"
    }
    if (got < 0) wrong(file, "it is not there")
    printf "const %s = (() => {\n%sreturn {%s };\n})();\n", variable(file), text, names
}

BEGIN { put("app.js") }
