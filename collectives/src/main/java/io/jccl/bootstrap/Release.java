package io.jccl.bootstrap;

import java.io.IOException;
import java.io.InputStream;
import java.lang.module.InvalidModuleDescriptorException;
import java.lang.module.ModuleDescriptor;
import java.net.URI;
import java.net.URL;
import org.jspecify.annotations.Nullable;

/** The version of JCCL. */
final class Release {
    private static final String UNKNOWN = "unknown";

    /** Set by tests. */
    private static volatile @Nullable String pretended;

    private Release() {}

    /** The version of the module, also if the jar is on the class path. */
    static String version() {
        String p = pretended;
        if (p != null) {
            return p;
        }
        ModuleDescriptor own = Release.class.getModule().getDescriptor();
        if (own == null) {
            own = besideThisClass();
        }
        return own == null ? UNKNOWN : own.rawVersion().orElse(UNKNOWN);
    }

    /** The module descriptor in this class's own jar or folder; other modules have theirs. */
    private static @Nullable ModuleDescriptor besideThisClass() {
        URL here = Release.class.getResource("Release.class");
        String path = Release.class.getName().replace('.', '/') + ".class";
        if (here == null || !here.toString().endsWith(path)) {
            return null;
        }
        String root = here.toString().substring(0, here.toString().length() - path.length());
        try (InputStream in = URI.create(root + "module-info.class").toURL().openStream()) {
            ModuleDescriptor found = ModuleDescriptor.read(in);
            // A shaded jar has one descriptor, or none.
            return found.name().startsWith("io.jccl") ? found : null;
        } catch (IOException | IllegalArgumentException | InvalidModuleDescriptorException e) {
            return null;
        }
    }

    static void pretend(String version) {
        pretended = version;
    }
}
