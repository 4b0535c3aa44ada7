package io.jccl.cli.doctor;

import io.jccl.cli.doctor.Facts.ConfigFile;
import io.jccl.cli.doctor.Facts.Setting;
import io.jccl.cli.doctor.Facts.Variable;
import io.jccl.cli.shell.Secrets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * Reads settings from the environment and configuration files. Never shows what may be a secret.
 */
final class ConfigurationProbe {
    /** Variables that affect collectives; others are private and are not shown. */
    private static final Pattern SHOWN =
            Pattern.compile(
                    "(NCCL|CUDA|NVIDIA|UCX|OMPI|PMIX|JCCL)_.*|LD_LIBRARY_PATH|LD_PRELOAD"
                            + "|CONDA_PREFIX|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE"
                            + "|MASTER_ADDR|MASTER_PORT");

    private final Machine machine;

    /** The origin of each variable that NCCL will use. */
    private final Map<String, String> setBy = new HashMap<>();

    private ConfigurationProbe(Machine machine) {
        this.machine = machine;
        machine.environment().keySet().forEach(n -> setBy.put(n, "the environment"));
    }

    static Facts.Configuration examine(Machine machine) {
        return new Facts.Configuration(
                new ConfigurationProbe(machine).files(),
                shown(machine.environment(), SHOWN),
                shown(machine.properties(), Pattern.compile("jccl\\..*")));
    }

    private static List<Variable> shown(Map<String, String> all, Pattern names) {
        List<Variable> shown = new ArrayList<>();
        new TreeMap<>(all)
                .forEach((name, value) -> {
                    if (names.matcher(name).matches()) {
                        shown.add(new Variable(name, Secrets.hidden(name, value)));
                    }
                });
        return List.copyOf(shown);
    }

    /**
     * NCCL reads one file of the user and then the one of the machine; the first value of a
     * variable counts.
     */
    private List<ConfigFile> files() {
        List<ConfigFile> files = new ArrayList<>();
        String named = machine.environment().getOrDefault("NCCL_CONF_FILE", "");
        String home = machine.property("user.home");
        if (!named.isEmpty()) {
            files.add(file(named, "NCCL_CONF_FILE"));
        } else if (home.startsWith("/")) { // "?" for a user without one
            files.add(file(home + "/.nccl.conf", "the user's"));
        }
        files.add(file("/etc/nccl.conf", "the machine's"));
        return List.copyOf(files);
    }

    private ConfigFile file(String path, String origin) {
        String absolute = path.startsWith("/") ? path : machine.property("user.dir") + "/" + path;
        Reading<String> text =
                Bounded.call(
                                "reading " + absolute,
                                machine.patience(),
                                () -> machine.files().text(absolute))
                        .flatMap(r -> r);
        if (!machine.files().exists(absolute)) {
            return new ConfigFile(absolute, origin, ConfigFile.ABSENT, List.of());
        }
        return switch (text) {
            case Reading.Known<String>(String t) ->
                    new ConfigFile(absolute, origin, ConfigFile.READ, settings(t, absolute));
            case Reading.Unknown<String>(String reason) ->
                    new ConfigFile(absolute, origin, reason, List.of());
        };
    }

    /** NCCL's grammar: a comment has # as its first character, and names are taken literally. */
    private List<Setting> settings(String text, String path) {
        List<Setting> settings = new ArrayList<>();
        for (String line : text.lines().toList()) {
            int equals = line.indexOf('=');
            if (line.startsWith("#") || equals < 0) {
                continue;
            }
            String name = line.substring(0, equals);
            String value = Secrets.hidden(name, line.substring(equals + 1));
            settings.add(new Setting(name, value, setBy.get(name)));
            setBy.putIfAbsent(name, path);
        }
        return List.copyOf(settings);
    }
}
