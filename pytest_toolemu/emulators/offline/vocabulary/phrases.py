"""Phrases for products, titles (a topic, sometimes with an addition) and messages, by language; | separates them."""

from __future__ import annotations

from typing import Final

PHRASES: Final = {
    "en": {
        "product": "Bread knife|Bookshelf|Cordless drill|Cotton sheets|Desk lamp|Espresso cups|Garden hose|Hiking "
        "boots|Kettle|Linen tablecloth|Notebook|Office chair|Rain jacket|Standing desk|Thermos flask|Travel adapter|"
        "Wool blanket",
        "topic": "Agenda|Annual review|Budget|Checklist|Delivery|Floor plan|Guest list|Inspection report|Insurance "
        "papers|Meeting notes|Open questions|Order confirmation|Price list|Proposal|Schedule|Travel plans|Weekly "
        "update",
        "addition": "for the north office|for the new tenants|before the holidays|from the workshop|for the spring|"
        "with corrections|for the team|after the call|as agreed|from last week|for the lower floor",
        "sentence": "The last version has all the changes that we talked about.|Two points are still open.|We went "
        "through it together and found nothing unusual.|The supplier has confirmed the dates.|Parking is behind the "
        "building.|The figures are the same as last month.|Someone will be at the front desk until six.|The rest "
        "follows by the end of the week.|It took a little longer than planned.|Copies went to everyone on the list.|"
        "The keys are in the small cabinet.|Lunch is included for all participants.|The old copy stays in the "
        "archive for a year.|Everything fits into the smaller van.|The second half was much quieter.|The room seats "
        "about twenty people.",
    },
    "de": {
        "product": "Akkuschrauber|Brotmesser|Bücherregal|Bürostuhl|Espressotassen|Gartenschlauch|Leinentischdecke|"
        "Notizbuch|Regenjacke|Reiseadapter|Schreibtischlampe|Thermoskanne|Wanderschuhe|Wasserkocher|Wolldecke|"
        "Bettwäsche",
        "topic": "Angebot|Auftragsbestätigung|Bauplan|Besprechungsnotizen|Budget|Checkliste|Gästeliste|"
        "Jahresrückblick|Lieferung|Offene Fragen|Preisliste|Prüfbericht|Reiseplanung|Tagesordnung|Terminplan|"
        "Versicherungsunterlagen",
        "addition": "für das Büro Nord|für die neuen Mieter|vor den Feiertagen|aus der Werkstatt|für das Frühjahr|"
        "mit Korrekturen|für das Team|nach dem Gespräch|wie vereinbart|aus der letzten Woche|für das Erdgeschoss",
        "sentence": "Die letzte Fassung enthält alle besprochenen Änderungen.|Zwei Punkte sind noch offen.|Wir sind "
        "alles gemeinsam durchgegangen.|Der Lieferant hat die Termine bestätigt.|Parkplätze gibt es hinter dem Haus.|"
        "Die Zahlen sind dieselben wie im Vormonat.|Der Empfang ist bis achtzehn Uhr besetzt.|Der Rest folgt bis "
        "Ende der Woche.|Es hat etwas länger gedauert als geplant.|Alle auf der Liste haben eine Kopie.|Die "
        "Schlüssel liegen im kleinen Schrank.|Das Mittagessen ist für alle dabei.|Die alte Fassung bleibt ein Jahr "
        "im Archiv.|Im Raum finden etwa zwanzig Personen Platz.|Die zweite Hälfte war deutlich ruhiger.",
    },
    "fr": {
        "product": "Adaptateur de voyage|Bouilloire|Carnet|Chaise de bureau|Chaussures de marche|Couteau à pain|"
        "Couverture en laine|Lampe de bureau|Nappe en lin|Parure de lit|Perceuse sans fil|Tasses à café|Tuyau "
        "d'arrosage|Thermos",
        "topic": "Bilan annuel|Budget|Calendrier|Comptes rendus|Confirmation de commande|Devis|Dossier d'assurance|"
        "Liste des invités|Liste des prix|Livraison|Ordre du jour|Plan du bâtiment|Points en suspens|Rapport de "
        "visite|Voyage",
        "addition": "pour le bureau nord|pour les nouveaux locataires|avant les vacances|de l'atelier|pour le "
        "printemps|avec corrections|pour l'équipe|après l'appel|comme convenu|de la semaine dernière",
        "sentence": "La dernière version contient toutes les modifications prévues.|Deux points restent ouverts.|"
        "Nous avons tout relu ensemble.|Le fournisseur a confirmé les dates.|Le parking se trouve derrière le "
        "bâtiment.|Les chiffres sont les mêmes que le mois dernier.|L'accueil est ouvert jusqu'à dix-huit heures.|La "
        "suite arrive avant la fin de la semaine.|Cela a pris un peu plus de temps que prévu.|Tous les inscrits ont "
        "reçu une copie.|Les clés sont dans le petit placard.|Le déjeuner est compris pour tous.|L'ancienne version "
        "reste un an aux archives.|La salle accueille une vingtaine de personnes.",
    },
    "es": {
        "product": "Adaptador de viaje|Botas de montaña|Cuaderno|Cuchillo de pan|Estantería|Funda nórdica|Hervidor|"
        "Lámpara de mesa|Manguera|Mantel de lino|Manta de lana|Silla de oficina|Taladro sin cable|Tazas de café|Termo",
        "topic": "Acta de la reunión|Balance anual|Calendario|Confirmación del pedido|Cuestiones pendientes|Entrega|"
        "Informe de la visita|Lista de invitados|Lista de precios|Orden del día|Papeles del seguro|Plano|Presupuesto|"
        "Viaje",
        "addition": "para la oficina norte|para los nuevos inquilinos|antes de las fiestas|del taller|para la "
        "primavera|con correcciones|para el equipo|después de la llamada|según lo acordado|de la semana pasada",
        "sentence": "La última versión recoge todos los cambios acordados.|Quedan dos puntos por resolver.|Lo hemos "
        "repasado juntos.|El proveedor ha confirmado las fechas.|Se puede aparcar detrás del edificio.|Las cifras "
        "son las mismas que el mes pasado.|La recepción abre hasta las seis.|El resto llegará antes del fin de "
        "semana.|Ha tardado un poco más de lo previsto.|Todos los de la lista tienen una copia.|Las llaves están en "
        "el armario pequeño.|La comida está incluida para todos.|La copia antigua se guarda un año en el archivo.|En "
        "la sala caben unas veinte personas.",
    },
    "pt": {
        "product": "Adaptador de viagem|Berbequim sem fios|Botas de caminhada|Caderno|Cadeira de escritório|"
        "Candeeiro de mesa|Chaleira|Chávenas de café|Estante|Faca de pão|Garrafa térmica|Manta de lã|Mangueira|"
        "Toalha de linho",
        "topic": "Ata da reunião|Balanço anual|Calendário|Confirmação da encomenda|Entrega|Lista de convidados|Lista "
        "de preços|Ordem de trabalhos|Orçamento|Papéis do seguro|Planta|Questões em aberto|Relatório da visita|Viagem",
        "addition": "para o escritório norte|para os novos inquilinos|antes das férias|da oficina|para a primavera|"
        "com correções|para a equipa|depois da chamada|como combinado|da semana passada",
        "sentence": "A última versão tem todas as alterações combinadas.|Ainda há dois pontos em aberto.|Revimos "
        "tudo em conjunto.|O fornecedor confirmou as datas.|O estacionamento fica atrás do edifício.|Os números são "
        "os mesmos do mês passado.|A receção está aberta até às seis.|O resto segue até ao fim da semana.|Demorou um "
        "pouco mais do que o previsto.|Todos os que estão na lista têm uma cópia.|As chaves estão no armário "
        "pequeno.|O almoço está incluído para todos.|A cópia antiga fica um ano no arquivo.|A sala leva cerca de "
        "vinte pessoas.",
    },
    "it": {
        "product": "Adattatore da viaggio|Bollitore|Coltello da pane|Coperta di lana|Giacca impermeabile|Lampada da "
        "tavolo|Libreria|Quaderno|Scarponi|Sedia da ufficio|Tazzine|Termos|Tovaglia di lino|Trapano a batteria|Tubo "
        "da giardino",
        "topic": "Bilancio annuale|Calendario|Conferma d'ordine|Consegna|Documenti dell'assicurazione|Elenco degli "
        "invitati|Listino prezzi|Ordine del giorno|Pianta|Preventivo|Questioni aperte|Relazione|Verbale|Viaggio",
        "addition": "per l'ufficio nord|per i nuovi inquilini|prima delle feste|dall'officina|per la primavera|con "
        "correzioni|per il gruppo|dopo la telefonata|come concordato|della settimana scorsa",
        "sentence": "L'ultima versione contiene tutte le modifiche concordate.|Restano aperti due punti.|Abbiamo "
        "riletto tutto insieme.|Il fornitore ha confermato le date.|Il parcheggio è dietro l'edificio.|Le cifre sono "
        "le stesse del mese scorso.|La portineria è aperta fino alle sei.|Il resto arriva entro la fine della "
        "settimana.|Ci è voluto un po' più del previsto.|Tutti quelli in elenco hanno una copia.|Le chiavi sono "
        "nell'armadietto.|Il pranzo è compreso per tutti.|La vecchia copia resta un anno in archivio.|La sala ospita "
        "una ventina di persone.",
    },
    "nl": {
        "product": "Accuboormachine|Boekenkast|Broodmes|Bureaulamp|Bureaustoel|Dekbedovertrek|Espressokopjes|Linnen "
        "tafelkleed|Notitieboek|Regenjas|Reisadapter|Thermosfles|Tuinslang|Wandelschoenen|Waterkoker|Wollen deken",
        "topic": "Agenda|Begroting|Bestelbevestiging|Gastenlijst|Inspectierapport|Jaaroverzicht|Levering|Notulen|"
        "Offerte|Open vragen|Planning|Plattegrond|Prijslijst|Reisplannen|Verzekeringspapieren|Weekbericht",
        "addition": "voor kantoor Noord|voor de nieuwe huurders|voor de feestdagen|uit de werkplaats|voor het "
        "voorjaar|met correcties|voor het team|na het gesprek|zoals afgesproken|van vorige week|voor de "
        "benedenverdieping",
        "sentence": "De laatste versie bevat alle afgesproken wijzigingen.|Twee punten staan nog open.|We hebben "
        "alles samen doorgenomen.|De leverancier heeft de data bevestigd.|Parkeren kan achter het gebouw.|De cijfers "
        "zijn dezelfde als vorige maand.|De balie is tot zes uur open.|De rest volgt voor het einde van de week.|Het "
        "duurde iets langer dan gepland.|Iedereen op de lijst heeft een kopie.|De sleutels liggen in het kleine "
        "kastje.|De lunch is voor iedereen inbegrepen.|De oude versie blijft een jaar in het archief.|In de zaal "
        "passen ongeveer twintig mensen.",
    },
    "sv": {
        "product": "Bokhylla|Brödkniv|Espressokoppar|Kontorsstol|Linneduk|Påslakan|Regnjacka|Reseadapter|"
        "Skrivbordslampa|Skruvdragare|Termos|Trädgårdsslang|Vandringskängor|Vattenkokare|Yllefilt|Anteckningsbok",
        "topic": "Besiktningsprotokoll|Budget|Checklista|Dagordning|Försäkringspapper|Gästlista|Leverans|"
        "Mötesanteckningar|Offert|Orderbekräftelse|Prislista|Resplan|Ritning|Tidsplan|Veckobrev|Årsöversikt|Öppna "
        "frågor",
        "addition": "för norra kontoret|för de nya hyresgästerna|före helgerna|från verkstaden|för våren|med "
        "rättelser|för gruppen|efter samtalet|enligt överenskommelse|från förra veckan|för bottenvåningen",
        "sentence": "Den senaste versionen har alla ändringar vi talade om.|Två punkter är fortfarande öppna.|Vi "
        "gick igenom allt tillsammans.|Leverantören har bekräftat datumen.|Det går att parkera bakom huset.|"
        "Siffrorna är desamma som förra månaden.|Receptionen är öppen till klockan sex.|Resten kommer före veckans "
        "slut.|Det tog lite längre tid än planerat.|Alla på listan har fått en kopia.|Nycklarna ligger i det lilla "
        "skåpet.|Lunch ingår för alla.|Den gamla versionen finns kvar ett år i arkivet.|Rummet har plats för ungefär "
        "tjugo personer.",
    },
    "pl": {
        "product": "Adapter podróżny|Buty trekkingowe|Czajnik|Filiżanki do kawy|Koc wełniany|Krzesło biurowe|Kurtka "
        "przeciwdeszczowa|Lampka biurkowa|Nóż do chleba|Notatnik|Obrus lniany|Pościel|Regał na książki|Termos|"
        "Wiertarka|Wąż ogrodowy",
        "topic": "Budżet|Cennik|Dostawa|Dokumenty ubezpieczenia|Harmonogram|Lista gości|Notatki ze spotkania|Oferta|"
        "Otwarte pytania|Plan budynku|Plan podróży|Podsumowanie roku|Porządek obrad|Potwierdzenie zamówienia|"
        "Protokół odbioru",
        "addition": "dla biura północ|dla nowych najemców|przed świętami|z warsztatu|na wiosnę|z poprawkami|dla "
        "zespołu|po rozmowie|zgodnie z ustaleniami|z zeszłego tygodnia|dla parteru",
        "sentence": "Ostatnia wersja zawiera wszystkie uzgodnione zmiany.|Dwa punkty są jeszcze otwarte.|"
        "Przejrzeliśmy wszystko razem.|Dostawca potwierdził terminy.|Parking jest za budynkiem.|Liczby są takie same "
        "jak w zeszłym miesiącu.|Recepcja jest czynna do osiemnastej.|Reszta będzie do końca tygodnia.|Trwało to "
        "trochę dłużej, niż planowano.|Wszyscy z listy mają kopię.|Klucze są w małej szafce.|Obiad jest wliczony dla "
        "wszystkich.|Stara wersja zostaje na rok w archiwum.|W sali mieści się około dwudziestu osób.",
    },
}
