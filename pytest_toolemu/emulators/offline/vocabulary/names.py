"""Names of people, streets, legal forms of companies, and jobs, by language; | separates words."""

from __future__ import annotations

from typing import Final

NAMES: Final = {
    "en": {
        "given": "Amelia|Andrew|Beatrice|Caleb|Charlotte|Daniel|Eleanor|Ethan|Fiona|George|Hannah|Harriet|Isaac|"
        "Joanna|Laura|Leonard|Marcus|Megan|Nathan|Nora|Oliver|Patrick|Priya|Rachel|Rosalind|Samuel|Simon|Tessa|"
        "Victor|Zoe",
        "family": "Abbott|Barlow|Bennett|Carver|Chambers|Dawson|Ellery|Farrow|Gallagher|Hargreaves|Holloway|Hughes|"
        "Iyer|Jennings|Keating|Lambert|Mercer|Nolan|Okafor|Pemberton|Quinn|Redfern|Sandhu|Tanner|Underwood|Vaughan|"
        "Whitlock|Yates",
        "street": "Alder Lane|Bridge Street|Canal Street|Chapel Lane|Church Road|Elm Grove|Harbour Road|Highfield "
        "Avenue|Linden Avenue|Maple Street|Mill Road|Orchard Drive|Park Avenue|Queen Street|Station Road|Willow Way",
        "form": "Ltd|Inc.|LLC|Group|& Co.",
        "job": "Account manager|Architect|Bookkeeper|Dentist|Editor|Electrician|Head of purchasing|Nurse|Office "
        "manager|Pharmacist|Project lead|Site engineer|Software developer|Surveyor|Teacher|Translator",
    },
    "de": {
        "given": "Anja|Anton|Benedikt|Birgit|Carolin|Christoph|Clara|Dominik|Elke|Felix|Frieda|Gesine|Hannes|Ines|"
        "Jakob|Jörg|Katharina|Lena|Lukas|Marlene|Moritz|Nadja|Niklas|Ottilie|Paula|Ruth|Sebastian|Tobias|Ute|Volker",
        "family": "Arendt|Baumann|Böttcher|Brandt|Dietrich|Ebert|Falkner|Gruber|Hartwig|Hofmann|Jäger|Kessler|Krüger|"
        "Lindner|Lorenz|Maurer|Neumann|Ostermann|Pohl|Reuter|Schäfer|Seidel|Thiele|Ullmann|Vogt|Wegener|Winkler|"
        "Zimmer",
        "street": "Ahornweg|Am Mühlbach|Bahnhofstraße|Bergstraße|Birkenallee|Brunnengasse|Gartenstraße|Goethestraße|"
        "Hafenstraße|Kirchplatz|Lindenstraße|Marktgasse|Parkstraße|Rosenweg|Schulstraße|Wiesenweg",
        "form": "GmbH|AG|KG|& Söhne|GmbH & Co. KG",
        "job": "Apothekerin|Architekt|Bauleiterin|Buchhalter|Einkaufsleiterin|Elektriker|Erzieherin|Grafikerin|"
        "Hausmeister|Lehrerin|Pflegedienstleitung|Projektleiter|Rechtsanwältin|Softwareentwickler|Übersetzerin|"
        "Zahnarzt",
    },
    "fr": {
        "given": "Adèle|Agathe|Alain|Antoine|Bastien|Camille|Céline|Chloé|Damien|Élodie|Étienne|Fabrice|Florence|"
        "Gaëlle|Hugo|Inès|Jérôme|Juliette|Laurent|Lucie|Manon|Mathieu|Noémie|Olivier|Pauline|Quentin|Romain|Solène|"
        "Yves",
        "family": "Aubert|Barbier|Besson|Blanchard|Carpentier|Chevalier|Collin|Delmas|Dupuis|Fabre|Fontaine|Gaillard|"
        "Guérin|Humbert|Jacquet|Lacroix|Lefèvre|Marchand|Mercier|Noël|Perrin|Renaud|Roussel|Tessier|Vasseur|Vidal",
        "street": "allée des Tilleuls|avenue de la Gare|boulevard Victor-Hugo|chemin du Moulin|cours des Platanes|"
        "impasse du Lavoir|place du Marché|quai des Pêcheurs|rue de l'Église|rue de la Fontaine|rue des Acacias|rue "
        "des Écoles|rue du Four|rue du Port|rue Pasteur",
        "form": "SARL|SA|SAS|et Fils|& Cie",
        "job": "Architecte|Assistante de direction|Chef de projet|Comptable|Conductrice de travaux|Dentiste|"
        "Développeuse|Électricien|Enseignante|Infirmier|Juriste|Pharmacienne|Responsable des achats|Rédactrice|"
        "Traducteur",
    },
    "es": {
        "given": "Adrián|Aitana|Álvaro|Beatriz|Carlos|Carmen|Diego|Elena|Emilio|Esther|Fernando|Gloria|Gonzalo|Inés|"
        "Irene|Jaime|Jimena|Lucía|Manuel|Marta|Mateo|Nuria|Óscar|Pilar|Ramón|Raquel|Sergio|Silvia|Teresa|Tomás",
        "family": "Aguilar|Arroyo|Bravo|Cabrera|Calvo|Campos|Crespo|Delgado|Esteban|Fuentes|Gallego|Herrero|Ibáñez|"
        "Lozano|Marín|Medina|Molina|Navarro|Ortega|Pastor|Peña|Prieto|Reyes|Rojas|Santana|Serrano|Soler|Vega|Vidal",
        "street": "Avenida de la Estación|Avenida del Puerto|Calle de Goya|Calle de la Paz|Calle del Carmen|Calle "
        "del Olivo|Calle Mayor|Calle Nueva|Calle Real|Camino del Molino|Paseo de la Alameda|Plaza de España|Plaza "
        "del Mercado",
        "form": "S.L.|S.A.|e Hijos|y Asociados",
        "job": "Abogada|Administrativo|Arquitecta|Contable|Dentista|Desarrolladora|Diseñador gráfico|Editora|"
        "Electricista|Enfermera|Farmacéutico|Jefa de compras|Jefe de obra|Maestra|Responsable de proyecto|Traductor",
    },
    "pt": {
        "given": "Afonso|Alice|Ana|André|Bárbara|Beatriz|Bruno|Carolina|Catarina|Diogo|Duarte|Eduarda|Filipa|"
        "Francisco|Gonçalo|Helena|Hugo|Inês|Joana|João|Leonor|Luísa|Mafalda|Margarida|Miguel|Paulo|Rui|Sofia|Teresa|"
        "Vasco",
        "family": "Almeida|Antunes|Azevedo|Barbosa|Batista|Campos|Cardoso|Carvalho|Coelho|Correia|Cunha|Duarte|"
        "Esteves|Faria|Fonseca|Freitas|Guerra|Leite|Lopes|Macedo|Magalhães|Matos|Mendes|Neves|Nogueira|Pinto|Queirós|"
        "Ramos|Tavares",
        "street": "Alameda das Tílias|Avenida Central|Avenida da Liberdade|Largo da Fonte|Praça do Comércio|Rua da "
        "Escola|Rua das Flores|Rua de Santa Clara|Rua do Carmo|Rua do Mercado|Rua do Moinho|Rua do Sol|Rua Nova",
        "form": "Lda.|S.A.|e Filhos|& Associados",
        "job": "Advogada|Arquiteto|Assistente administrativa|Contabilista|Dentista|Editora|Eletricista|Enfermeiro|"
        "Engenheira civil|Farmacêutica|Gestor de projeto|Professora|Programador|Responsável de compras|Tradutora",
    },
    "it": {
        "given": "Alessia|Andrea|Beatrice|Bruno|Caterina|Chiara|Claudio|Davide|Elisa|Emanuele|Federica|Filippo|"
        "Gabriele|Giada|Giorgio|Ilaria|Lorenzo|Luca|Marta|Matteo|Nadia|Paolo|Pietro|Roberta|Serena|Silvia|Stefano|"
        "Teresa",
        "family": "Barbieri|Basile|Bellini|Bianchi|Caruso|Cattaneo|Conti|D'Amico|Fabbri|Ferrara|Fontana|Galli|Gatti|"
        "Greco|Leone|Lombardi|Longo|Marchetti|Marini|Martini|Monti|Negri|Orlando|Pellegrini|Rinaldi|Sala|Serra|Villa",
        "street": "Corso Italia|Largo dei Tigli|Piazza del Mercato|Via Cavour|Via dei Mulini|Via del Porto|Via della "
        "Stazione|Via delle Rose|Via Dante|Via Garibaldi|Via Manzoni|Via San Marco|Viale dei Platani|Vicolo Stretto",
        "form": "S.r.l.|S.p.A.|& Figli|S.n.c.",
        "job": "Architetta|Avvocato|Capo cantiere|Commercialista|Dentista|Elettricista|Farmacista|Grafica|Impiegato|"
        "Infermiera|Insegnante|Project manager|Redattrice|Responsabile acquisti|Sviluppatore|Traduttrice",
    },
    "nl": {
        "given": "Anneke|Bart|Bram|Carlijn|Daan|Esmee|Femke|Floor|Gijs|Hanneke|Ilse|Jasper|Joost|Karin|Lieke|Lotte|"
        "Maarten|Marieke|Merel|Niels|Noor|Pieter|Roos|Ruben|Sanne|Sjoerd|Thijs|Tineke|Willem|Wouter",
        "family": "Bakker|Boersma|Brouwer|de Groot|de Wit|Dekker|Dijkstra|Drost|Hendriks|Hoekstra|Huisman|Jansen|Kok|"
        "Koster|Kuipers|Meijer|Mulder|Peters|Postma|Prins|Schouten|Smits|van Dam|van den Berg|Veenstra|Verhoeven|"
        "Visser",
        "street": "Berkenlaan|Brugstraat|Dorpsstraat|Eikenlaan|Havenkade|Julianastraat|Kerkstraat|Lindelaan|"
        "Marktplein|Molenweg|Nieuwstraat|Oude Gracht|Parklaan|Schoolstraat|Stationsweg|Wilgenpad",
        "form": "B.V.|N.V.|& Zonen|V.O.F.",
        "job": "Administratrice|Apotheker|Architect|Boekhouder|Docente|Elektricien|Inkoper|Jurist|Officemanager|"
        "Ontwikkelaar|Projectleider|Redacteur|Tandarts|Uitvoerder|Verpleegkundige|Vertaler",
    },
    "sv": {
        "given": "Agnes|Albin|Alva|Anders|Astrid|Axel|Birgitta|Björn|Ebba|Elin|Emil|Frida|Gustav|Håkan|Ida|Ingrid|"
        "Joakim|Karin|Klara|Lars|Linnea|Malin|Mikael|Nils|Oskar|Petra|Rasmus|Sara|Sixten|Tove|Ulrika|Viktor",
        "family": "Åkesson|Bergman|Björk|Blom|Dahlberg|Eklund|Engström|Forsberg|Fransson|Hedlund|Holmgren|Isaksson|"
        "Jonsson|Lindqvist|Ljung|Löfgren|Lundin|Månsson|Nordin|Norberg|Nyström|Öberg|Palm|Sandberg|Sjögren|Strand|"
        "Wallin",
        "street": "Björkvägen|Brogatan|Drottninggatan|Ekvägen|Fiskargatan|Hamngatan|Järnvägsgatan|Kyrkogatan|"
        "Kvarngatan|Ljungvägen|Nygatan|Parkvägen|Rosenstigen|Skolgatan|Storgatan|Strandvägen",
        "form": "AB|& Söner AB|HB|Group AB",
        "job": "Administratör|Apotekare|Arkitekt|Elektriker|Inköpschef|Jurist|Lärare|Platschef|Projektledare|"
        "Redaktör|Redovisningsekonom|Sjuksköterska|Systemutvecklare|Tandläkare|Översättare",
    },
    "pl": {
        "given": "Agata|Aleksandra|Andrzej|Bartosz|Beata|Dorota|Elżbieta|Ewa|Filip|Grzegorz|Hanna|Iga|Igor|Jacek|"
        "Joanna|Kamil|Karolina|Łukasz|Magdalena|Marcin|Marek|Marta|Michał|Natalia|Paweł|Piotr|Tomasz|Urszula|"
        "Wojciech|Zofia",
        "family": "Adamczyk|Baran|Bąk|Cieślak|Duda|Gajda|Jurek|Kaczmarek|Kołodziej|Kozieł|Krawczyk|Krupa|Kubiak|"
        "Marciniak|Mazur|Michalak|Mróz|Nowak|Pawlak|Pietrzak|Sikora|Stępień|Szewczyk|Walczak|Wilk|Wójcik|Wróbel|Zając",
        "street": "ul. Brzozowa|ul. Długa|ul. Dworcowa|ul. Klonowa|ul. Kościelna|ul. Krótka|ul. Kwiatowa|ul. Leśna|"
        "ul. Lipowa|ul. Młyńska|ul. Ogrodowa|ul. Parkowa|ul. Polna|ul. Portowa|ul. Słoneczna|ul. Szkolna",
        "form": "Sp. z o.o.|S.A.|i Synowie|sp.j.",
        "job": "Architekt|Elektryk|Farmaceuta|Inspektor nadzoru|Kierownik budowy|Kierownik projektu|Księgowa|"
        "Nauczycielka|Pielęgniarka|Prawnik|Programista|Redaktorka|Specjalista ds. zakupów|Stomatolog|Tłumaczka",
    },
}
